"""The tables behind the figures."""

import base64
import io
import itertools

import numpy as np
import pandas as pd
import pytest

from predbn.report.frames import check_results
from predbn.report.intervals import mean_intervals
from predbn.report.tables import Column, Table, by_severity, by_split, severity_tables, split_table


def test_means_over_corruptions(frame):
    table = by_severity(check_results(frame))
    assert list(table.columns) == ["series", "severity", "accuracy", "brier", "ece"]
    assert len(table) == 36
    rows = frame.query("method == 'ensemble' and strategy == 'batch' and severity == 3 and metric == 'ece'")
    mean = table[(table["series"] == "ensemble · batch") & (table["severity"] == 3)]["ece"].item()
    assert mean == pytest.approx(np.mean(rows["value"].to_numpy()))


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


def test_the_columns_that_matter_come_first_and_the_rest_is_asked_for(frame):
    more = pd.concat([frame, frame[frame["metric"] == "ece"].assign(metric="nll")])
    table = split_table(by_split(check_results(more)), "All")
    assert [(column.heading, column.is_number, column.shown) for column in table.columns] == [
        ("corruption", False, "any"),
        ("severity", True, "any"),
        ("strategy", False, "any"),
        ("accuracy, %", True, "any"),
        ("Brier score", True, "wide"),
        ("ECE", True, "wide"),
        ("NLL", True, "full"),
    ]
    first, *_, later = itertools.islice(table.rows, 7)
    assert [cell.text for cell in first[:3]] == ["clean", "clean", "vanilla · train"]
    assert first[1].value == 0
    assert later[0].text == "gaussian noise"
    assert table.has_more == "full"


def test_one_table_per_metric_with_a_column_per_severity(frame):
    results = check_results(frame)
    accuracy, *others = severity_tables(results, mean_intervals(results))
    assert [table.caption for table in others] == [
        "Brier score by severity (lower is better)",
        "ECE by severity (lower is better)",
    ]
    assert [column.heading for column in accuracy.columns] == ["strategy", "clean", "1", "2", "3", "4", "5"]
    assert accuracy.columns[0].cells[0] == "vanilla · train"
    clean, severe = accuracy.columns[1], accuracy.columns[-1]
    assert clean.intervals is None  # one split of one network
    values = frame.query("method == 'vanilla' and strategy == 'train' and severity == 5 and metric == 'accuracy'")
    assert severe.values[0] == pytest.approx(100 * values["value"].mean())
    (low, high), note = severe.intervals[0], severe.notes[0]
    assert low < severe.values[0] < high
    assert note == f"{low:.1f}–{high:.1f}"


def test_a_table_can_be_read_back_from_its_csv(frame):
    results = check_results(frame)
    (table, *_) = severity_tables(results, mean_intervals(results))
    kind, _, content = table.csv_address.partition(",")
    assert kind == "data:text/csv;charset=utf-8;base64"
    table_read = pd.read_csv(io.BytesIO(base64.b64decode(content)))
    assert list(table_read.columns[:6]) == ["strategy", "clean", "1", "1 low", "1 high", "2"]
    assert table_read["5"].to_numpy() == pytest.approx(np.array(table.columns[-1].values), rel=1e-7)
    assert table.csv_name == "accuracy-by-severity-higher-is-better.csv"


def test_names_with_commas_and_missing_values_are_valid_csv():
    table = Table("T", [Column("name", ['a,"b"', "c"]), Column("x", ["1", "–"], [1.0, float("nan")])])
    assert table.csv == 'name,x\n"a,""b""",1\nc,\n'
