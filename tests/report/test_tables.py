"""The tables behind the figures."""

from __future__ import annotations

import numpy as np
import pytest

from predbn.report.frames import check_results
from predbn.report.tables import by_severity, by_split, metric_table


def test_means_over_corruptions(frame):
    table = by_severity(check_results(frame))
    assert list(table.columns) == ["series", "severity", "accuracy", "brier", "ece"]
    assert len(table) == 36
    rows = frame.query("method == 'ensemble' and strategy == 'batch' and severity == 3 and metric == 'ece'")
    found = table[(table["series"] == "ensemble · batch") & (table["severity"] == 3)]["ece"].item()
    assert found == pytest.approx(np.mean(rows["value"].to_numpy()))


def test_splits_start_with_clean_and_follow_the_families(frame):
    table = by_split(check_results(frame.sample(frac=1, random_state=1)))
    assert len(table) == 576
    assert list(dict.fromkeys(table["corruption"]))[:5] == [
        "clean",
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "speckle_noise",
    ]


def test_headings_have_units_and_numbers_are_marked(frame):
    table = metric_table(by_split(check_results(frame)), "All")
    assert [(column.heading, column.is_number) for column in table.columns] == [
        ("series", False),
        ("corruption", False),
        ("severity", True),
        ("accuracy, %", True),
        ("Brier score", True),
        ("ECE", True),
    ]
    assert table.rows[0][:3] == ("vanilla · train", "clean", "0")
    assert table.rows[6][1] == "gaussian noise"
