"""The tables that commands print."""

import io

import pandas as pd
import pytest
from rich.console import Console

from predbn.commands.output import comparison_table, mce_table, print_results, severity_table, to_records

KEYS = {"model": "m", "method": "vanilla", "batch_size": 10, "order": "shuffled", "seed": 0, "metric": "accuracy"}


def rows(metric: str, values: dict[str, float], severity: int = 1) -> list[dict]:
    """One row per strategy."""
    shared = {**KEYS, "metric": metric, "corruption": "fog" if severity else "clean", "severity": severity}
    return [{**shared, "strategy": strategy, "value": value} for strategy, value in values.items()]


class FakeResults:
    """Results without mCE."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame, self.hits, self.card = frame, pd.DataFrame(), {}

    def mce(self) -> pd.DataFrame:
        return pd.DataFrame()


def text_of(*printed) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(*printed)
    return console.file.getvalue()


def printed_results(frame: pd.DataFrame, **options) -> str:
    console = Console(width=120, file=io.StringIO())
    print_results(console, FakeResults(frame), **options)
    return console.file.getvalue()


def test_the_auc_is_shown_if_it_was_measured():
    frame = pd.DataFrame(
        rows("accuracy", {"batch": 0.75, "train": 0.5}) + rows("auc", {"batch": 0.612, "train": 0.587})
    )
    text = printed_results(frame)
    assert "AUC (higher is better)" in text
    assert "0.612" in text
    assert "AUC" not in printed_results(frame[frame["metric"] == "accuracy"])


def test_metrics_that_are_not_asked_for_are_left_out_unless_there_are_no_others():
    frame = pd.DataFrame(rows("accuracy", {"batch": 0.75}) + rows("top5", {"batch": 0.875}))
    assert "top-5 accuracy" not in printed_results(frame).split("•")[0]
    assert "87.5" in printed_results(frame, metrics=("top5",))
    assert "87.5" in printed_results(frame[frame["metric"] == "top5"])


def test_a_strategy_with_options_is_shown_whole():
    """Brackets are part of the name, not markup."""
    frame = pd.DataFrame(rows("accuracy", {"batch[eps=0.01, layers=last]": 0.75, "train": 0.5}))
    text = text_of(severity_table(frame, ["accuracy"]))
    assert "batch[eps=0.01, layers=last]" in text
    assert "75.0" in text


def test_a_metric_that_was_not_measured_at_a_severity_leaves_a_gap():
    frame = pd.DataFrame(
        [row for severity in (0, 1) for row in rows("accuracy", {"batch": 0.75}, severity)]
        + rows("nll", {"batch": 1.25})
    )
    *_, line = [line for line in text_of(severity_table(frame, ["accuracy", "nll"])).splitlines() if "batch" in line]
    assert line.split()[-2:] == ["–", "1.250"]


def test_a_single_split_has_no_interval():
    row = {"metric": "nll", "severity": "0", "splits": 1, "first": 1.0, "second": 2.0, "difference": -1.0}
    text = text_of(comparison_table(pd.DataFrame([{**row, "low": float("nan"), "high": float("nan")}])))
    assert "clean" in text
    assert "−1.000" in text


def test_the_mce_has_an_interval_or_says_how_to_get_one():
    values = [
        {"strategy": "train", "mce": 76.4, "low": 75.2, "high": 77.6},
        {"strategy": "batch", "mce": 61.2, "low": float("nan"), "high": float("nan")},
    ]
    shared = {"model": "m/0", "method": "vanilla", "batch_size": 100, "order": "shuffled", "seed": 0}
    text = text_of(mce_table(pd.DataFrame([{**shared, **value} for value in values])))
    assert "  train" in text
    assert "75.2 to 77.6" in text
    assert "not kept: use --hits" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_records_are_valid_json(value):
    assert to_records(pd.DataFrame({"a": [1.5, value]})) == [{"a": 1.5}, {"a": None}]
