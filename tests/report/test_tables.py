"""The tables behind the figures."""

from __future__ import annotations

import numpy as np
import pytest

from predbn.report.frames import checked
from predbn.report.tables import by_severity, by_split, table_html


def test_means_over_corruptions(frame):
    table = by_severity(checked(frame))
    assert list(table.columns) == ["series", "severity", "accuracy", "brier", "ece"]
    assert len(table) == 36
    rows = frame.query("method == 'ensemble' and strategy == 'batch' and severity == 3 and metric == 'ece'")
    found = table[(table["series"] == "ensemble · batch") & (table["severity"] == 3)]["ece"].item()
    assert found == pytest.approx(np.mean(rows["value"].to_numpy()))


def test_splits_start_with_clean_and_follow_the_families(frame):
    table = by_split(checked(frame.sample(frac=1, random_state=1)))
    assert len(table) == 576
    assert list(dict.fromkeys(table["corruption"]))[:5] == [
        "clean",
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "speckle_noise",
    ]


def test_headings_are_buttons_with_units_and_cells_are_escaped(frame):
    text = table_html(by_split(checked(frame.replace({"method": {"vanilla": "<b>"}}))), "All")
    assert '<th scope="col" aria-sort="none" class="number"><button type="button">accuracy, %</button></th>' in text
    assert "<td>&lt;b&gt; · train</td>" in text
    assert "<b>" not in text
