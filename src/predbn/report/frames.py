"""The tidy frames that everything here is drawn from: their columns, their order, what tells their rows apart.

`frame` has one row per (model, method, strategy, corruption, severity, batch_size, order, seed, metric);
`reliability` has the same keys without the metric, and one row per bin of confidence. A *series* is what gets a
colour of its own: a (method, strategy), with whatever else differs within it. Models that differ only in a
trailing `/number` are repetitions of one network; values are averaged over repetitions and seeds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from predbn.common import ReportError
from predbn.shifts import get_corruption as get
from predbn.shifts import names as corruption_names

__all__ = [
    "BASELINE",
    "CLEAN",
    "KEYS",
    "averaged",
    "checked",
    "checked_reliability",
    "families",
    "main_method",
    "main_setting",
    "methods",
    "of_metric",
    "readable",
    "series_of",
    "settings",
    "strategies",
    "with_series",
]

KEYS = ("model", "method", "strategy", "corruption", "severity", "batch_size", "order", "seed")
BINS = ("bin", "lower", "upper", "count", "confidence", "accuracy")
CLEAN = "clean"
BASELINE = "train"

_METHODS = ("vanilla", "temperature", "ensemble")
_STRATEGIES = (BASELINE, "batch", "prior", "ema", "frozen", "population")
_SETTING = {"network": "", "batch_size": "batch size ", "order": "order "}


def _checked(frame: pd.DataFrame, called: str, extra: Sequence[str], key: Sequence[str]) -> pd.DataFrame:
    missing = [column for column in (*KEYS, *extra) if column not in frame.columns]
    if missing:
        raise ReportError(
            f"The {called} frame has no column {', '.join(missing)}: it needs {', '.join((*KEYS, *extra))}."
        )
    if frame.empty:
        raise ReportError(f"The {called} frame has no rows: run the evaluation first.")
    twice = frame.duplicated([*KEYS, *key])
    if twice.any():
        row = frame.loc[twice, [*KEYS, *key]].iloc[0].to_dict()
        raise ReportError(f"The {called} frame has {twice.sum()} rows twice, the first being {row}: keep one of each.")
    kinds = {key: int if key in ("severity", "batch_size", "seed") else str for key in KEYS}
    plain: pd.DataFrame = frame.astype(kinds).reset_index(drop=True)
    plain["network"] = [re.sub(r"/\d+$", "", model) for model in plain["model"]]
    return plain


def checked(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with the column `network` added, or a sentence on what is wrong with them."""
    return _checked(frame, "results", ("metric", "value"), ("metric",))


def checked_reliability(frame: pd.DataFrame) -> pd.DataFrame:
    """The bins of reliability diagrams with the column `network` added, or a sentence on what is wrong."""
    return _checked(frame, "reliability", BINS, ("bin",))


def of_metric(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of one metric."""
    rows: pd.DataFrame = frame[frame["metric"] == metric]
    if rows.empty:
        there = ", ".join(sorted(frame["metric"].unique()))
        raise ReportError(f"The results have no metric {metric!r}: they have {there}.")
    return rows


def _place(known: Sequence[str], name: str) -> tuple[int, str]:
    stem = name.split("(")[0]
    return (known.index(stem) if stem in known else len(known), name)


def methods(frame: pd.DataFrame) -> list[str]:
    """The methods of a frame, the plain one first."""
    return sorted(frame["method"].unique(), key=lambda name: _place(_METHODS, name))


def main_method(frame: pd.DataFrame) -> str:
    """The method that findings are stated for."""
    return methods(frame)[0]


def strategies(frame: pd.DataFrame) -> list[str]:
    """The strategies of a frame, the baseline first."""
    return sorted(frame["strategy"].unique(), key=lambda name: _place(_STRATEGIES, name))


def _differing(frame: pd.DataFrame) -> list[str]:
    """Which of network, batch size and order take more than one value within a (method, strategy)."""
    within = frame.groupby(["method", "strategy"])[list(_SETTING)].nunique().max()
    return [column for column in _SETTING if within[column] > 1]


def _label(columns: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{_SETTING[column]}{value}" for column, value in zip(columns, values, strict=True))


def settings(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The frame apart by what differs besides method and strategy; one part with an empty name where nothing does."""
    columns = _differing(frame)
    if not columns:
        return {"": frame}
    return {_label(columns, values): part for values, part in frame.groupby(columns)}


def main_setting(parts: dict[str, pd.DataFrame]) -> str:
    """The setting that findings are stated for: the largest batches, and of these the most rows."""
    return max(parts, key=lambda name: (int(parts[name]["batch_size"].max()), len(parts[name])))


def with_series(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the column `series`: method, strategy, and whatever else differs within them."""
    columns = _differing(frame)
    series = frame["method"] + " · " + frame["strategy"]
    if columns:
        series = series + " · " + frame[columns].apply(lambda row: _label(columns, list(row)), axis=1)
    named: pd.DataFrame = frame.assign(series=series)
    return named


def series_of(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a series (columns series, method, strategy), in the order in which they are drawn."""
    unique = with_series(frame)[["series", "method", "strategy", *_SETTING]].drop_duplicates("series")
    order = sorted(
        unique.to_dict("records"),
        key=lambda row: (
            _place(_METHODS, row["method"]),
            _place(_STRATEGIES, row["strategy"]),
            *(row[column] for column in _SETTING),
        ),
    )
    series: pd.DataFrame = pd.DataFrame(order)
    return series


def averaged(frame: pd.DataFrame, over: str = "corruption") -> pd.DataFrame:
    """The mean value of every (series, severity, `over`): over models and seeds, unless `over` is one of them."""
    keys = list(dict.fromkeys(["series", "method", "strategy", "corruption", "severity", over]))
    means: pd.DataFrame = with_series(frame).groupby(keys, sort=False)["value"].mean().reset_index()
    return means


def families(corruptions: Sequence[str]) -> dict[str, list[str]]:
    """Corruptions by family, families and corruptions in the order of the published benchmark, strangers last."""
    known: dict[str, list[str]] = {}
    for name in corruption_names("all"):
        known.setdefault(get(name).family, []).append(name)
    found = {family: [name for name in members if name in set(corruptions)] for family, members in known.items()}
    published = set(corruption_names("all")) | {CLEAN}
    found["other"] = list(dict.fromkeys(name for name in corruptions if name not in published))
    return {family: members for family, members in found.items() if members}


def readable(name: str) -> str:
    """A name as a sentence has it."""
    return name.replace("_", " ")
