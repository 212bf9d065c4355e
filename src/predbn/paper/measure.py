"""The few kinds of measurement that the claims are made of.

Everything is signed so that positive is better, whichever way a metric points: gain = s · (first − second), with
s = −1 where lower is better.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.metrics import Interval, bootstrap_difference, bootstrap_mean, bootstrap_ratio
from predbn.report import meaning

from .claims import Measurement, Side
from .runs import Runs
from .series import SHIFTED, Over, Series, Severities, paired

__all__ = ["gain", "growth", "mean", "rank_correlation", "share", "signed", "unit"]

_RESAMPLES, _LEVEL = 2_000, 0.95
Array = npt.NDArray[np.float64]
_MANY = {"corruption": "corruptions", "model": "networks", "seed": "draws"}


def gain(
    runs: Runs,
    first: Series,
    second: Series,
    metric: str,
    severities: Severities = SHIFTED,
    *,
    over: Over = "corruption",
    side: Side = "above",
    bound: float = 0.0,
    where: str = "",
) -> Measurement:
    """By how much `first` is better than `second`, pair by pair."""
    table = paired(runs, (first, second), metric, severities, over=over)
    sides = [meaning(metric).sign * table[each.label].to_numpy() for each in (first, second)]
    what = f"{meaning(metric).label}{unit(metric)}: {first.label} over {second.label}{where}"
    return _measurement(what, bootstrap_difference(*sides), side, bound, len(table), over, metric)


def growth(runs: Runs, first: Series, second: Series, metric: str) -> Measurement:
    """By how much more `first` is better than `second` at the strongest shift than at the mildest."""
    sides = [signed(paired(runs, (first, second), metric, (level,)), metric) for level in (1, 5)]
    gained = [side[first.label] - side[second.label] for side in sides]
    what = f"{meaning(metric).label}: gain at severity 5 less gain at severity 1"
    return mean(what, (gained[1] - gained[0]).dropna(), metric)


def mean(
    what: str,
    values: pd.Series,
    metric: str,
    *,
    over: Over = "corruption",
    side: Side = "above",
    bound: float = 0.0,
) -> Measurement:
    """The mean of values that were computed from pairs."""
    interval = bootstrap_mean(values.to_numpy())
    return _measurement(f"{what}{unit(metric)}", interval, side, bound, len(values), over, metric)


def share(
    what: str,
    part: pd.Series,
    whole: pd.Series,
    *,
    over: Over = "corruption",
    side: Side,
    bound: float,
) -> Measurement:
    """mean(part) / mean(whole), in per cent; without a clear whole there is no share, and its interval is endless."""
    whole_mean = bootstrap_mean(whole.to_numpy())
    if whole_mean.low > 0:
        interval = bootstrap_ratio(part.to_numpy(), whole.to_numpy())
    else:
        estimate = float(part.mean() / whole.mean()) if whole.mean() else np.nan
        interval = Interval(estimate, -np.inf, np.inf, whole_mean.level)
    return Measurement(f"{what}, %", interval, side, bound, len(part), _MANY[over], scale=100, digits=0)


def rank_correlation(what: str, splits: pd.DataFrame, *, side: Side, bound: float = 0.0) -> Measurement:
    """Spearman's rank correlation of the columns divergence and value over splits.

    The interval is a percentile bootstrap that draws whole corruptions with replacement, for the severities of one
    are not independent of each other.
    """
    kinds, kind = np.unique(splits["corruption"].to_numpy(), return_inverse=True)
    x, y = splits["divergence"].to_numpy(), splits["value"].to_numpy()
    drawn = np.random.default_rng(0).integers(len(kinds), size=(_RESAMPLES, len(kinds)))
    times = np.stack([np.bincount(which, minlength=len(kinds)) for which in drawn])[:, kind].astype(float)
    low, high = np.nanquantile(_correlations(x, y, times), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    estimate = float(_correlations(x, y, np.ones((1, len(x))))[0])
    interval = Interval(estimate, float(low), float(high), _LEVEL)
    return Measurement(what, interval, side, bound, len(kinds), "corruptions", digits=2)


def _correlations(x: Array, y: Array, times: Array) -> Array:
    """Spearman's rank correlations of the points (x_i, y_i), point i taken times[r, i] times; NaN where one is flat."""
    count = times.sum(1, keepdims=True)
    a, b = (_ranks(values, times) - (count + 1) / 2 for values in (x, y))
    with np.errstate(invalid="ignore"):
        found: Array = (times * a * b).sum(1) / np.sqrt((times * a * a).sum(1) * (times * b * b).sum(1))
    return found


def _ranks(values: Array, times: Array) -> Array:
    """The rank of each value where value j is there times[r, j] times, equal ones sharing the mean of their places.

    rank_i = Σ_j times_j [v_j < v_i] + (1 + Σ_j times_j [v_j = v_i]) / 2
    """
    below, equal = values[:, None] < values, values[:, None] == values
    ranks: Array = times @ (below + 0.5 * equal) + 0.5
    return ranks


def signed(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A table of `paired` in which more is better."""
    better: pd.DataFrame = table * meaning(metric).sign
    return better


def unit(metric: str) -> str:
    """What follows the name of what is measured."""
    return ", points" if meaning(metric).percent else ""


def _measurement(
    what: str, interval: Interval, side: Side, bound: float, count: int, over: Over, metric: str
) -> Measurement:
    percent = meaning(metric).percent
    scale, digits = (100, 1) if percent else (1, 3)
    return Measurement(what, interval, side, bound, count, _MANY[over], scale=scale, digits=digits)
