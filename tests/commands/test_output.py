"""Names with brackets are names, not markup."""

from __future__ import annotations

import io

import pandas as pd
from rich.console import Console

from predbn.commands.output import comparison_table, mce_table, progress_bar, severity_table

KEYS = {"model": "m", "method": "vanilla", "batch_size": 10, "order": "shuffled", "seed": 0, "metric": "accuracy"}


def shown(thing) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(thing)
    return console.file.getvalue()


def test_a_strategy_with_options_is_shown_whole():
    rows = [
        {**KEYS, "strategy": strategy, "corruption": "fog", "severity": 1, "value": value}
        for strategy, value in (("batch[eps=0.01, layers=last]", 0.75), ("train", 0.5))
    ]
    text = shown(severity_table(pd.DataFrame(rows), ["accuracy"]))
    assert "batch[eps=0.01, layers=last]" in text
    assert "75.0" in text


def test_a_label_with_brackets_does_not_break_the_bar():
    with progress_bar(Console(quiet=True), "evaluating") as progress:
        progress(1, 2, "eps of zoo:x/[/0]")


def test_one_split_has_no_interval():
    row = {"metric": "nll", "severity": "0", "splits": 1, "first": 1.0, "second": 2.0, "difference": -1.0}
    text = shown(comparison_table(pd.DataFrame([{**row, "low": float("nan"), "high": float("nan")}]), 0.95))
    assert "clean" in text
    assert "−1.000" in text


def test_the_mce_says_whether_it_has_an_interval():
    rows = [
        {"strategy": "train", "mce": 76.4, "low": 75.2, "high": 77.6},
        {"strategy": "batch", "mce": 61.2, "low": float("nan"), "high": float("nan")},
    ]
    shared = {"model": "m/0", "method": "vanilla", "batch_size": 100, "order": "shuffled", "seed": 0}
    text = shown(mce_table(pd.DataFrame([{**shared, **row} for row in rows])))
    assert "vanilla · train" in text
    assert "75.2 to 77.6" in text
    assert "not kept: say --hits" in text
