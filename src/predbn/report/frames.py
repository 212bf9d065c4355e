"""The tidy data frames behind all figures and tables: their columns, their order, and how their rows are grouped.

The results frame has one row per (model, method, strategy, corruption, severity, batch_size, order, seed, metric). The
reliability frame has the same keys without the metric, and one row per bin of confidence.

series    what gets its own colour: a strategy, its method if there are several, and whatever else differs within them
setting   what may differ within a (method, strategy): the network, the batch size, the order of the stream
network   models that differ only in a trailing `/number` are repetitions of one network

Values are averaged over repetitions and seeds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from predbn.common import ReportError
from predbn.shifts import get_corruption
from predbn.shifts import names as corruption_names

from .metric_info import metric_info
from .strategy_info import strategy_labels, strategy_order

KEYS = ("model", "method", "strategy", "corruption", "severity", "batch_size", "order", "seed")
CLEAN = "clean"
BASELINE = "train"

_BIN_COLUMNS = ("bin", "lower", "upper", "count", "confidence", "accuracy")
_METHODS = ("vanilla", "temperature", "ensemble")
_SETTING_LABELS = {"network": "", "batch_size": "batch size ", "order": "order "}


def check_results(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with the column `network` added; raises if columns are missing or rows are repeated."""
    return _check(frame, "results", ("metric", "value"), ("metric",))


def check_reliability(frame: pd.DataFrame) -> pd.DataFrame:
    """The bins of reliability diagrams with the column `network` added; raises as `check_results` does."""
    return _check(frame, "reliability", _BIN_COLUMNS, ("bin",))


def _check(frame: pd.DataFrame, kind: str, extra_columns: Sequence[str], extra_keys: Sequence[str]) -> pd.DataFrame:
    columns = (*KEYS, *extra_columns)
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise ReportError(f"The {kind} frame needs the columns {', '.join(columns)}; it lacks {', '.join(missing)}.")
    if frame.empty:
        raise ReportError(f"The {kind} frame has no rows: run the evaluation first.")
    repeated = frame.duplicated([*KEYS, *extra_keys])
    if repeated.any():
        row = frame.loc[repeated, [*KEYS, *extra_keys]].iloc[0].to_dict()
        raise ReportError(f"The {kind} frame has {repeated.sum()} duplicate rows, the first is {row}: drop them.")
    types = {key: int if key in ("severity", "batch_size", "seed") else str for key in KEYS}
    checked: pd.DataFrame = frame.astype(types).reset_index(drop=True)
    checked["network"] = [re.sub(r"/\d+$", "", model) for model in checked["model"]]
    return checked


def rows_of_metric(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of one metric."""
    rows: pd.DataFrame = frame[frame["metric"] == metric]
    if rows.empty:
        available = ", ".join(sorted(frame["metric"].unique()))
        raise ReportError(f"Expected one of the metrics {available}, but got {metric!r}.")
    return rows


def _position(order: Sequence[str], name: str) -> tuple[int, str]:
    """The key to sort names by an order; "prior(N=16)" counts as "prior", and unknown names come last."""
    stem = name.split("(")[0]
    return (order.index(stem) if stem in order else len(order), name)


def methods(frame: pd.DataFrame) -> list[str]:
    """The methods of a frame, the plain one first."""
    return sorted(frame["method"].unique(), key=lambda name: _position(_METHODS, name))


def main_method(frame: pd.DataFrame) -> str:
    """The method that the headline is about."""
    return methods(frame)[0]


def strategies(frame: pd.DataFrame) -> list[str]:
    """The strategies of a frame, the baseline first."""
    order = strategy_order()
    return sorted(frame["strategy"].unique(), key=lambda name: _position(order, name))


def _varying(frame: pd.DataFrame) -> list[str]:
    """Which of network, batch size and order take more than one value within a (method, strategy)."""
    counts = frame.groupby(["method", "strategy"])[list(_SETTING_LABELS)].nunique().max()
    return [column for column in _SETTING_LABELS if counts[column] > 1]


def _setting_label(columns: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{_SETTING_LABELS[column]}{value}" for column, value in zip(columns, values, strict=True))


def split_by_setting(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each setting, by its label; if there is only one setting, its label is empty."""
    columns = _varying(frame)
    if not columns:
        return {"": frame}
    return {_setting_label(columns, values): rows for values, rows in frame.groupby(columns)}


def main_setting(by_setting: dict[str, pd.DataFrame]) -> str:
    """The setting that the headline is about: the largest batches without an attack, and of these the most rows."""

    def rank(name: str) -> tuple[bool, int, int]:
        rows = by_setting[name]
        return not attacks(rows), int(rows["batch_size"].max()), len(rows)

    return max(by_setting, key=rank)


def attacks(frame: pd.DataFrame) -> list[str]:
    """The orders in which some images of each batch are an attacker's: "attacked:everyone"."""
    return sorted(order for order in frame["order"].unique() if order.startswith("attacked:"))


def add_series(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the column `series`: the method if there are several, the strategy, and what differs in them."""
    columns = _varying(frame)
    series = frame["strategy"].astype(str).map(strategy_labels(frame["strategy"].unique()))
    if frame["method"].nunique() > 1:
        series = frame["method"].astype(str) + " · " + series
    if columns:
        series = series + " · " + frame[columns].apply(lambda row: _setting_label(columns, list(row)), axis=1)
    with_series: pd.DataFrame = frame.assign(series=series)
    return with_series


def list_series(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per series (columns series, method, strategy), in drawing order."""
    unique = add_series(frame)[["series", "method", "strategy", *_SETTING_LABELS]].drop_duplicates("series")
    order = strategy_order()
    rows = sorted(
        unique.to_dict("records"),
        key=lambda row: (
            _position(_METHODS, row["method"]),
            _position(order, row["strategy"]),
            *(row[column] for column in _SETTING_LABELS),
        ),
    )
    series: pd.DataFrame = pd.DataFrame(rows)
    return series


def mean_values(frame: pd.DataFrame) -> pd.DataFrame:
    """The mean value of each series on each split, over models and seeds."""
    keys = ["series", "method", "strategy", "corruption", "severity"]
    means: pd.DataFrame = add_series(frame).groupby(keys, sort=False)["value"].mean().reset_index()
    return means


def gain_over_baseline(
    frame: pd.DataFrame, metric: str, *, strategy: str = "batch", method: str | None = None
) -> pd.DataFrame:
    """How much better than `train` a strategy is on each split: the columns corruption, severity, before, after, gain.

    gain = s · (after − before), with s = −1 if lower is better, so that a positive gain is always an improvement.
    Before and after are means over the models, seeds, orders and batch sizes that have both strategies.
    """
    rows, info = rows_of_metric(frame, metric), metric_info(metric)
    if info.better is None:
        raise ReportError(f"Expected a metric with a direction, but neither higher nor lower {metric!r} is better.")
    method = main_method(rows) if method is None else method
    rows = rows[rows["method"] == method].rename(columns={"value": "before"})
    keys = [key for key in KEYS if key != "strategy"]
    before, after = (rows.loc[rows["strategy"] == name, [*keys, "before"]] for name in (BASELINE, strategy))
    pairs = before.merge(after.rename(columns={"before": "after"}), on=keys)
    if pairs.empty:
        available = ", ".join(sorted(rows["strategy"].unique())) or "none"
        raise ReportError(
            f"Expected splits with both {BASELINE!r} and {strategy!r} for method {method!r}, but its strategies are "
            f"{available}."
        )
    splits: pd.DataFrame = pairs.groupby(["corruption", "severity"], as_index=False, sort=False)[
        ["before", "after"]
    ].mean()
    splits["gain"] = info.sign * (splits["after"] - splits["before"])
    return splits


def group_by_family(corruptions: Sequence[str]) -> dict[str, list[str]]:
    """Corruptions by family, both in the order of the published benchmark; unknown ones come last, as "other"."""
    published, present = corruption_names("all"), set(corruptions)
    families: dict[str, list[str]] = {get_corruption(name).family: [] for name in published}
    for name in published:
        if name in present:
            families[get_corruption(name).family].append(name)
    families["other"] = list(dict.fromkeys(name for name in corruptions if name not in {*published, CLEAN}))
    return {family: members for family, members in families.items() if members}


def sort_corruptions(corruptions: Sequence[str]) -> list[str]:
    """Clean data, then the different corruptions by family."""
    return [CLEAN, *(name for members in group_by_family(corruptions).values() for name in members)]


def display_name(name: str) -> str:
    """Write "gaussian_noise" as "gaussian noise"; changing shifts such as "in_turn-all" keep their names."""
    return name if "-" in name else name.replace("_", " ")


def severity_label(severity: int) -> str:
    """The severity, or "clean"."""
    return str(severity) if severity else CLEAN
