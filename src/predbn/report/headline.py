"""The findings in words: what got better, by how much, where, and what got worse."""

from __future__ import annotations

from contextlib import suppress

import pandas as pd

from predbn.common import ReportError

from .frames import (
    BASELINE,
    CLEAN,
    add_series,
    check_results,
    display_name,
    gain_over_baseline,
    main_method,
    main_setting,
    mean_values,
    rows_of_metric,
    split_by_setting,
    strategies,
)
from .metric_info import MetricInfo, capitalise, metric_info, sort_metrics
from .strategy_info import strategy_label, strategy_labels

MAX_SIDE_BY_SIDE = 4
"""How many other strategies one sentence can list."""


def headline(frame: pd.DataFrame) -> list[str]:
    """Plain sentences on what the results say, the most important first.

    They compare the other strategies with train BN for the main method: at the highest severity, over all splits and on
    clean data. Good and bad results are told in the same words. Of very many strategies, only prediction-time BN (or if
    it is missing, the first one) is compared, and the best one is named.
    """
    by_setting = split_by_setting(check_results(frame))
    main = main_setting(by_setting)
    rows = by_setting[main]
    compared = [name for name in strategies(rows) if _is_compared(rows, name)]
    metrics = [name for name in sort_metrics(rows["metric"]) if metric_info(name).better]
    if not compared or not metrics:
        return _without_comparison(rows)
    strategy = "batch" if "batch" in compared else compared[0]
    if 1 < len(compared) <= MAX_SIDE_BY_SIDE:
        sentences = _sentences_on_several(rows, compared, metrics, _with_setting(main))
    else:
        sentences = _main_sentences(rows, strategy, metrics, _with_setting(main))
    info = metric_info(metrics[0])
    for setting, others in by_setting.items():
        if setting != main and _is_compared(others, strategy) and info.name in set(others["metric"]):
            splits = gain_over_baseline(others, info.name, strategy=strategy)
            subject = "it" if len(compared) == 1 else _subject(strategy)
            sentences.append(_at_highest_severity(splits, info, subject, _with_setting(setting)))
    return [sentence for sentence in sentences if sentence]


def _is_compared(rows: pd.DataFrame, strategy: str) -> bool:
    """Whether the main method has both the baseline and this other strategy."""
    available = set(rows.loc[rows["method"] == main_method(rows), "strategy"])
    return strategy != BASELINE and {BASELINE, strategy} <= available


def _with_setting(setting: str) -> str:
    """How a sentence on a setting begins: "With batches of 500, "; empty if there is only one setting."""
    phrase = setting.replace("batch size ", "batches of ").replace("order ", "the order ")
    return f"With {phrase}, " if setting else ""


def _main_sentences(rows: pd.DataFrame, strategy: str, metrics: list[str], beginning: str) -> list[str]:
    gains = _gains(rows, strategy, metrics)
    first = next(iter(gains))
    return [
        _at_highest_severity(gains[first], metric_info(first), _subject(strategy), beginning),
        _other_metrics(gains),
        _extremes(gains[first], metric_info(first)),
        _on_clean_data(gains),
        _best_series(rows, first),
    ]


def _subject(strategy: str) -> str:
    return "prediction-time BN" if strategy == "batch" else f"the strategy {strategy_label(strategy)}"


def _gains(rows: pd.DataFrame, strategy: str, metrics: list[str]) -> dict[str, pd.DataFrame]:
    """The gains over the baseline in every metric that was measured with both."""
    gains: dict[str, pd.DataFrame] = {}
    for metric in metrics:
        with suppress(ReportError):
            gains[metric] = gain_over_baseline(rows, metric, strategy=strategy)
    return gains


def _sentences_on_several(rows: pd.DataFrame, compared: list[str], metrics: list[str], beginning: str) -> list[str]:
    """The first metric under every strategy, at the highest severity and on clean data, and its range over splits."""
    labels = strategy_labels(rows["strategy"].unique())
    found = {labels[name]: _gains(rows, name, metrics) for name in compared}
    info = metric_info(next(metric for metric in metrics if any(metric in gains for gains in found.values())))
    gains = {name: gains[info.name] for name, gains in found.items() if info.name in gains}
    tops = {name: _highest_severity(splits) for name, splits in gains.items()}
    clean = {name: splits[splits["corruption"] == CLEAN] for name, splits in gains.items()}
    some = next(iter(tops.values()))
    sentences = []
    if len(some):
        over = f", on average over {len(some)} corruptions" if len(some) > 1 else ""
        where = f"at severity {some['severity'].iloc[0]}"
        sentences.append(capitalise(f"{beginning}{_under_each(tops, info, where)}{over}."))
    if len(next(iter(clean.values()))):
        sentences.append(f"{'' if sentences else beginning}On clean data, {_under_each(clean, info)}.")
    sentences += [_extremes(splits, info, with_strategy=name) for name, splits in gains.items()]
    return [*sentences, _best_series(rows, info.name) if rows["method"].nunique() > 1 else ""]


def _under_each(parts: dict[str, pd.DataFrame], info: MetricInfo, where: str = "") -> str:
    """`accuracy at severity 5 is x with train, y with batch and z with auto`."""
    before = next(iter(parts.values()))["before"].mean()
    values = {BASELINE: before, **{name: part["after"].mean() for name, part in parts.items()}}
    phrases = [f"{info.text(value)} with {name}" for name, value in values.items()]
    return f"{' '.join(filter(None, (info.label, where)))} is {_enumerate(phrases)}"


def _highest_severity(splits: pd.DataFrame) -> pd.DataFrame:
    """The shifted splits of the highest severity; empty if nothing is shifted."""
    shifted = splits[splits["corruption"] != CLEAN]
    highest: pd.DataFrame = shifted[shifted["severity"] == shifted["severity"].max()]
    return highest


def _at_highest_severity(splits: pd.DataFrame, info: MetricInfo, subject: str, beginning: str) -> str:
    """From what to what the metric changes at the highest severity."""
    top = _highest_severity(splits)
    if top.empty:
        return ""
    before, after = top["before"].mean(), top["after"].mean()
    what = f"{info.label} at severity {top['severity'].iloc[0]}"
    detail = f", on average over {len(top)} corruptions" if len(top) > 1 else ""
    if info.text(before) == info.text(after):
        return capitalise(f"{beginning}{subject} leaves {what} at {info.text(after)}{detail}.")
    verb = "raises" if after > before else "lowers"
    verdict = "" if info.name == "accuracy" else " (better)" if top["gain"].mean() > 0 else " (worse)"
    change = f"from {info.text(before)} to {info.text(after)}{verdict}"
    return capitalise(f"{beginning}{subject} {verb} {what} {change}{detail}.")


def _changes(means: dict[str, tuple[float, float]]) -> str:
    """`a improves from x to y and b from z to w; c worsens from …; d stays at …`, from means before and after."""
    groups: dict[str, list[str]] = {"improves": [], "worsens": [], "stays": []}
    for metric, (before, after) in means.items():
        info = metric_info(metric)
        if info.text(before) == info.text(after):
            groups["stays"].append(f"{info.label} stays at {info.text(after)}")
            continue
        verb = "improves" if info.sign * (after - before) > 0 else "worsens"
        repeated_verb = "" if groups[verb] else f" {verb}"
        groups[verb].append(f"{info.label}{repeated_verb} from {info.text(before)} to {info.text(after)}")
    return "; ".join(_enumerate(group) for group in groups.values() if group)


def _enumerate(phrases: list[str]) -> str:
    """`a, b and c`."""
    *others, last = phrases
    return f"{', '.join(others)} and {last}" if others else last


def _other_metrics(gains: dict[str, pd.DataFrame]) -> str:
    tops = {metric: _highest_severity(splits) for metric, splits in list(gains.items())[1:]}
    means = {metric: (top["before"].mean(), top["after"].mean()) for metric, top in tops.items() if len(top)}
    return f"There, {_changes(means)}." if means else ""


def _on_clean_data(gains: dict[str, pd.DataFrame]) -> str:
    rows = {metric: splits[splits["corruption"] == CLEAN] for metric, splits in gains.items()}
    means = {metric: (row["before"].iloc[0], row["after"].iloc[0]) for metric, row in rows.items() if len(row)}
    return f"On clean data, {_changes(means)}." if means else ""


def _extremes(splits: pd.DataFrame, info: MetricInfo, *, with_strategy: str = "") -> str:
    """In how many splits it is better than the baseline, the largest gain and the largest loss."""
    shifted = splits[splits["corruption"] != CLEAN].dropna(subset=["gain"]).reset_index(drop=True)
    if len(shifted) < 2:
        return ""

    def describe(index: int) -> str:
        row = shifted.loc[index]
        unit = " points" if info.percent else ""
        return f"{display_name(row['corruption'])} at severity {row['severity']} ({info.change(row['gain'])}{unit})"

    better = int((shifted["gain"] > 0).sum())
    subject = f"With {with_strategy} it is better than with {BASELINE}"
    subject = subject if with_strategy else f"It has the better {info.label}"
    count = f"{subject} in {better} of {len(shifted)} splits"
    best, worst = int(shifted["gain"].idxmax()), int(shifted["gain"].idxmin())
    if shifted.loc[worst, "gain"] >= 0:
        return f"{count}; the largest gain is on {describe(best)}, the smallest on {describe(worst)}."
    if shifted.loc[best, "gain"] <= 0:
        return f"{count}; the largest loss is on {describe(worst)}."
    return f"{count}; the largest gain is on {describe(best)}, the largest loss on {describe(worst)}."


def _best_series(rows: pd.DataFrame, metric: str) -> str:
    """Which series is best at the highest severity, if there are more than the two that are compared."""
    info = metric_info(metric)
    means = _series_means(rows_of_metric(rows, metric))
    if len(means) < 3:
        return ""
    best = max(means, key=lambda series: info.sign * means[series])
    result = f"{best} has the best {info.label} {_severity_phrase(rows)}: {info.text(means[best])}"
    return f"Of all {len(means)} combinations of method and strategy, {result}."


def _severity_phrase(rows: pd.DataFrame) -> str:
    severity = int(rows["severity"].max())
    return f"at severity {severity}" if severity else "on clean data"


def _series_means(rows: pd.DataFrame) -> dict[str, float]:
    """The mean over the corruptions at the highest severity, by series."""
    values = mean_values(rows)
    top = values[values["severity"] == values["severity"].max()]
    means: dict[str, float] = top.groupby("series", sort=False)["value"].mean().to_dict()
    return means


def _without_comparison(rows: pd.DataFrame) -> list[str]:
    """What was measured, if there is nothing to compare."""
    sentences = []
    for series, series_rows in add_series(rows).groupby("series", sort=False):
        values = []
        for metric in sort_metrics(series_rows["metric"]):
            mean = next(iter(_series_means(rows_of_metric(series_rows, metric)).values()))
            values.append(f"{metric_info(metric).label} {metric_info(metric).text(mean)}")
        sentences.append(f"{capitalise(str(series))} {_severity_phrase(rows)}: {', '.join(values)}.")
    return [
        *sentences,
        f"Nothing is compared, since the results do not have {BASELINE} together with another strategy.",
    ]
