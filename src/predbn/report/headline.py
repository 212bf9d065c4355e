"""The results in plain sentences: what got better or worse, by how much, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import pandas as pd

from predbn.common import ReportError

from .frames import (
    BASELINE,
    CLEAN,
    check_results,
    display_name,
    gain_over_baseline,
    main_method,
    main_setting,
    split_by_setting,
    strategies,
)
from .metric_info import MetricInfo, capitalise, metric_info, sort_metrics
from .strategy_info import strategy_labels
from .tables import by_severity

MAX_COMPARED = 4
"""Of more strategies than this, only `batch` (or else the first) is compared with the baseline."""

Gains = Mapping[str, pd.DataFrame]
"""The frame of `gain_over_baseline` by the label of the strategy."""


def headline(frame: pd.DataFrame) -> list[str]:
    """Compare all strategies with train BN in plain sentences, the most important first.

    They are about the main method: at the highest severity, on clean data, over all splits, and in other settings.
    Improvements and losses are worded alike.
    """
    by_setting = split_by_setting(check_results(frame))
    main = main_setting(by_setting)
    rows = by_setting[main]
    available = set(rows.loc[rows["method"] == main_method(rows), "strategy"])
    compared = [name for name in strategies(rows) if name in available - {BASELINE} and BASELINE in available]
    gains = _gains(rows, compared)
    if not gains:
        return _without_comparison(rows)
    if len(compared) > MAX_COMPARED:
        compared = ["batch" if "batch" in compared else compared[0]]
        gains = _gains(rows, compared)
    if len(compared) > 1:  # the other metrics of several strategies are too many numbers for a sentence
        gains = dict(list(gains.items())[:1])
    first, *other_metrics = gains
    shifted = {metric: _at_highest_severity(of_metric) for metric, of_metric in gains.items()}
    clean = {metric: _on_clean_data(of_metric) for metric, of_metric in gains.items()}
    sentences = [_top_sentence(gains[first], metric_info(first), main)]
    sentences += _means_sentence("There", {metric: shifted[metric] for metric in other_metrics})
    sentences += _means_sentence("On clean data", clean)
    sentences += [_extremes(splits, metric_info(first), label) for label, splits in gains[first].items()]
    sentences.append(_best_series(rows, first))
    for setting, others in by_setting.items():
        if setting != main:
            of_setting = _gains(others, compared, [first])
            sentences += [_top_sentence(of_metric, metric_info(first), setting) for of_metric in of_setting.values()]
    return [sentence for sentence in sentences if sentence]


def _gains(rows: pd.DataFrame, compared: Iterable[str], metrics: Iterable[str] | None = None) -> dict[str, Gains]:
    """The gains over the baseline by metric and strategy, without metrics for which there are none."""
    labels = strategy_labels(rows["strategy"].unique())
    gains: dict[str, Gains] = {}
    for metric in sort_metrics(rows["metric"]) if metrics is None else metrics:
        of_metric = {}
        for strategy in compared:
            with suppress(ReportError):
                of_metric[labels[strategy]] = gain_over_baseline(rows, metric, strategy=strategy)
        if of_metric:
            gains[metric] = of_metric
    return gains


def _at_highest_severity(gains: Gains) -> Gains:
    """The shifted splits of the highest severity, of the strategies that have any."""
    highest = {}
    for label, splits in gains.items():
        shifted = splits[splits["corruption"] != CLEAN]
        if len(shifted):
            highest[label] = shifted[shifted["severity"] == shifted["severity"].max()]
    return highest


def _on_clean_data(gains: Gains) -> Gains:
    clean = {label: splits[splits["corruption"] == CLEAN] for label, splits in gains.items()}
    return {label: splits for label, splits in clean.items() if len(splits)}


def _means(gains: Gains, info: MetricInfo) -> str:
    """`accuracy is 50.0 % with train, 64.0 % with batch and 68.0 % with auto`."""
    before = next(iter(gains.values()))["before"].mean()
    values = {BASELINE: before, **{label: splits["after"].mean() for label, splits in gains.items()}}
    *others, last = (f"{info.text(value)} with {label}" for label, value in values.items())
    direction = f" ({info.direction})" if info.better == "lower" else ""
    return f"{info.label}{direction} is {', '.join(others)} and {last}"


def _means_sentence(where: str, by_metric: Mapping[str, Gains]) -> list[str]:
    """The means of several metrics in one sentence; none if there are no splits."""
    means = [_means(gains, metric_info(metric)) for metric, gains in by_metric.items() if gains]
    return [f"{where}, {'; '.join(means)}."] if means else []


def _top_sentence(gains: Gains, info: MetricInfo, setting: str) -> str:
    """The means at the highest severity; empty if nothing is shifted."""
    highest = _at_highest_severity(gains)
    if not highest:
        return ""
    splits = next(iter(highest.values()))
    over = f", on average over {len(splits)} corruptions" if len(splits) > 1 else ""
    where = f"At severity {splits['severity'].iloc[0]}{f' ({setting})' if setting else ''}"
    return f"{where}, {_means(highest, info)}{over}."


def _extremes(splits: pd.DataFrame, info: MetricInfo, label: str) -> str:
    """In how many splits a strategy is better than the baseline, the largest gain and the largest loss."""
    shifted = splits[splits["corruption"] != CLEAN].dropna(subset=["gain"]).reset_index(drop=True)
    if len(shifted) < 2:
        return ""

    def describe(index: int) -> str:
        row = shifted.loc[index]
        unit = " points" if info.percent else ""
        return f"{display_name(row['corruption'])} at severity {row['severity']} ({info.change(row['gain'])}{unit})"

    better = int((shifted["gain"] > 0).sum())
    count = f"With {label}, {info.label} is better than with {BASELINE} in {better} of {len(shifted)} splits"
    best, worst = int(shifted["gain"].idxmax()), int(shifted["gain"].idxmin())
    if shifted.loc[worst, "gain"] >= 0:
        return f"{count}; the largest gain is on {describe(best)}, the smallest on {describe(worst)}."
    if shifted.loc[best, "gain"] <= 0:
        return f"{count}; the largest loss is on {describe(worst)}."
    return f"{count}; the largest gain is on {describe(best)}, the largest loss on {describe(worst)}."


def _best_series(rows: pd.DataFrame, metric: str) -> str:
    """Which series is best at the highest severity, if some of them are in no other sentence."""
    info = metric_info(metric)
    where, means = _means_by_series(rows)
    if rows["method"].nunique() == 1 and len(means) <= MAX_COMPARED + 1:
        return ""
    best = str((info.sign * means[metric]).idxmax())
    result = f"{best} has the best {info.label} {where}: {info.text(float(means[metric][best]))}"
    return f"Of all {len(means)} combinations of method and strategy, {result}."


def _means_by_series(rows: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """`at severity 5`, and the means over the corruptions there: one row per series, one column per metric."""
    means, severity = by_severity(rows), int(rows["severity"].max())
    where = f"at severity {severity}" if severity else "on clean data"
    return where, means[means["severity"] == severity].drop(columns="severity").set_index("series")


def _without_comparison(rows: pd.DataFrame) -> list[str]:
    """What was measured, if there is nothing to compare."""
    where, means = _means_by_series(rows)
    sentences = []
    for series, by_metric in means.iterrows():
        values = [f"{metric_info(str(name)).label} {metric_info(str(name)).text(v)}" for name, v in by_metric.items()]
        sentences.append(f"{capitalise(str(series))} {where}: {', '.join(values)}.")
    return [*sentences, f"Nothing is compared: the results do not have both {BASELINE} and another strategy."]
