"""The kinds of measurement that most claims are made of: gains, means and shares, with Student's t intervals.

Functions that take `runs` measure at once; the others, such as `gains`, give the `measure` of a claim. Gains are signed
so that positive is better, whichever way a metric points: gain = s · (first − second), with s = −1 if lower is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.common import NotMeasured
from predbn.metrics import Interval, t_mean, t_ratio
from predbn.report import metric_info

from .claims import MIN_VALUES, Measure, Measurement, Side
from .runs import Runs
from .series import METRICS, SHIFTED, Over, Series, Severities, paired

LEVEL = 0.95
_RESAMPLES = 2_000
PLURALS: dict[Over, str] = {"corruption": "corruptions", "model": "networks", "seed": "draws"}


def gain(
    runs: Runs,
    first: Series,
    second: Series,
    metric: str,
    severities: Severities = SHIFTED,
    *,
    over: Over | None = None,
    side: Side = "above",
    bound: float = 0.0,
    name: str = "",
) -> Measurement:
    """How much better `first` is than `second`, pair by pair; `name` says it in words.

    over  what the pairs are; by default `by_network`, for networks of different kinds with Welch's interval
    """
    what = f"{metric_info(metric).label}: {name or f'gain of {first.label} over {second.label}'}"

    def pairs(over: Over) -> Measurement:
        table = signed(paired(runs, (first, second), metric, severities, over=over), metric)
        return mean(what, table[first.label] - table[second.label], metric, over=over, side=side, bound=bound)

    if over is not None:
        return pairs(over)
    means = [
        metric_info(metric).sign
        * series.values(runs, metric, severities).groupby("model", observed=True)["value"].mean()
        for series in (first, second)
    ]
    if first.network == second.network or min(map(len, means)) < MIN_VALUES:
        return by_network(pairs)
    numbers = " and ".join(str(len(values)) for values in means)
    other = pairs("corruption")
    interval = welch(*(values.to_numpy() for values in means))
    return replace(other, interval=interval, count=min(map(len, means)), over=f"networks ({numbers})", other=other)


def welch(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> Interval:
    """The interval of mean(first) − mean(second) for values that are not pairs, with unequal variances."""
    from scipy.stats import ttest_ind  # here, because importing it takes most of a second

    bounds = ttest_ind(first, second, equal_var=False).confidence_interval(LEVEL)
    return Interval(float(first.mean() - second.mean()), float(bounds.low), float(bounds.high), LEVEL)


def by_network(measure: Callable[[Over], Measurement]) -> Measurement:
    """A measurement over networks with that over corruptions beside it; that alone if there are too few networks."""
    other = measure("corruption")
    try:
        measurement = measure("model")
    except NotMeasured:
        return other
    return other if measurement.count < MIN_VALUES else replace(measurement, other=other)


def gains(
    first: Series,
    second: Series,
    metrics: Sequence[str] = METRICS,
    severities: Severities = SHIFTED,
    **options: Any,
) -> Measure:
    """`gain`, with its options, in each of several metrics."""
    return lambda runs: [gain(runs, first, second, metric, severities, **options) for metric in metrics]


def gain_growth(first: Series, second: Series) -> Measure:
    """How much larger the gain of `first` over `second` is at severity 5 than at severity 1, in each metric."""

    def growth(runs: Runs, metric: str, over: Over) -> Measurement:
        tables = [signed(paired(runs, (first, second), metric, (severity,), over=over), metric) for severity in (1, 5)]
        mild, strong = (table[first.label] - table[second.label] for table in tables)
        what = f"{metric_info(metric).label}: gain of prediction BN at severity 5 minus its gain at severity 1"
        return mean(what, (strong - mild).dropna(), metric, over=over)

    return lambda runs: [by_network(partial(growth, runs, metric)) for metric in METRICS]


def all_of(*measures: Measure) -> Measure:
    """The measurements of several measures together."""
    return lambda runs: [measurement for measure in measures for measurement in measure(runs)]


def unmeasured(reason: str) -> Measure:
    """The measure of a claim that cannot be tested."""

    def measure(runs: Runs) -> list[Measurement]:
        raise NotMeasured(reason)

    return measure


def mean(
    what: str,
    values: pd.Series,
    metric: str,
    *,
    over: Over = "corruption",
    plural: str = "",
    side: Side = "above",
    bound: float = 0.0,
) -> Measurement:
    """The mean of values that were computed from pairs; `plural` says what they are over, if not one of `Over`."""
    scale, digits = (100, 1) if metric_info(metric).percent else (1, 3)
    unit = ", points" if metric_info(metric).percent else ""
    interval, count = t_mean(values.to_numpy(), level=LEVEL), len(values)
    return Measurement(
        f"{what}{unit}", interval, side, bound, count, plural or PLURALS[over], scale=scale, digits=digits
    )


def share(
    what: str,
    part: pd.Series,
    whole: pd.Series,
    *,
    over: Over = "corruption",
    side: Side,
    bound: float,
    signed: bool = False,
) -> Measurement:
    """mean(part) / mean(whole), in per cent.

    Unless the whole is clearly positive a share of it means nothing, and the interval is infinite.
    """
    interval = t_ratio(part.to_numpy(), whole.to_numpy(), level=LEVEL)
    if whole.mean() <= 0:
        interval = Interval(interval.estimate, -np.inf, np.inf, LEVEL)
    return Measurement(
        f"{what}, %", interval, side, bound, len(part), PLURALS[over], scale=100, digits=0, signed=signed
    )


def gain_share(
    what: str,
    part: tuple[Series, Series],
    whole: tuple[Series, Series],
    metrics: Sequence[str] = METRICS,
    severities: Severities = SHIFTED,
    *,
    side: Side,
    bound: float,
) -> Measure:
    """The gain of part[0] over part[1], as a share of the gain of whole[0] over whole[1], in each metric."""
    series = tuple(dict.fromkeys((*part, *whole)))

    def share_of_gain(runs: Runs, metric: str, over: Over) -> Measurement:
        table = signed(paired(runs, series, metric, severities, over=over), metric)
        parts = [table[first.label] - table[second.label] for first, second in (part, whole)]
        return share(f"{metric_info(metric).label}: {what}", *parts, over=over, side=side, bound=bound, signed=True)

    return lambda runs: [by_network(partial(share_of_gain, runs, metric)) for metric in metrics]


def rank_correlation(what: str, splits: pd.DataFrame, *, side: Side, seed: int) -> Measurement:
    """Spearman's rank correlation of the columns `divergence` and `value` over splits.

    The interval is a percentile bootstrap that draws whole corruptions with replacement, because the severities of one
    corruption are not independent. Corruptions that lack a severity are left out.
    """
    from scipy.stats import rankdata  # here, because importing it takes most of a second

    table = splits.pivot(index="corruption", columns="severity", values=["divergence", "value"]).dropna()
    count = len(table)
    drawn = np.random.default_rng(seed).integers(count, size=(_RESAMPLES, count))
    every = np.vstack([np.arange(count), drawn])  # the first row is the estimate, the others are the resamples
    x, y = (rankdata(table[name].to_numpy()[every].reshape(len(every), -1), axis=1) for name in ("divergence", "value"))
    x, y = (ranks - ranks.mean(1, keepdims=True) for ranks in (x, y))
    with np.errstate(invalid="ignore"):  # NaN if all values of a resample are equal
        correlations = (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))
    low, high = np.nanquantile(correlations[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    interval = Interval(float(correlations[0]), float(low), float(high), LEVEL)
    return Measurement(what, interval, side, 0.0, count, "corruptions", digits=2)


def signed(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A table of `paired` with the sign changed if lower is better, so that higher is always better."""
    better: pd.DataFrame = table * metric_info(metric).sign
    return better
