"""The kinds of measurement that the claims are made of.

Functions that take `runs` measure at once; the others, such as `gains`, give the `measure` of a claim. Gains are signed
so that positive is better, whichever way a metric points: gain = s · (first − second), with s = −1 if lower is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import BOOTSTRAP_RESAMPLES, Setting, Split, mce_by_image, unpack_hits
from predbn.metrics import (
    ALEXNET_ERRORS,
    Interval,
    bootstrap_difference,
    bootstrap_mean,
    bootstrap_ratio,
    corruption_errors,
)
from predbn.report import metric_info

from .claims import Measure, Measurement, Side
from .runs import Runs
from .series import METRICS, SHIFTED, Over, Series, Severities, paired

_RANK_RESAMPLES, LEVEL = 2_000, 0.95
_PLURALS = {"corruption": "corruptions", "model": "networks", "seed": "draws"}
Array = npt.NDArray[np.float64]


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
    suffix: str = "",
) -> Measurement:
    """How much better `first` is than `second`, pair by pair."""
    table = signed(paired(runs, (first, second), metric, severities, over=over), metric)
    interval = bootstrap_difference(table[first.label].to_numpy(), table[second.label].to_numpy())
    what = f"{metric_info(metric).label}{_unit(metric)}: {first.label} over {second.label}{suffix}"
    return _measurement(what, interval, side, bound, len(table), over, metric)


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

    def growth(runs: Runs, metric: str) -> Measurement:
        tables = [signed(paired(runs, (first, second), metric, (severity,)), metric) for severity in (1, 5)]
        mild, strong = (table[first.label] - table[second.label] for table in tables)
        what = f"{metric_info(metric).label}: gain at severity 5 minus gain at severity 1"
        return mean(what, (strong - mild).dropna(), metric)

    return lambda runs: [growth(runs, metric) for metric in METRICS]


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
    side: Side = "above",
    bound: float = 0.0,
) -> Measurement:
    """The mean of values that were computed from pairs."""
    interval = bootstrap_mean(values.to_numpy())
    return _measurement(f"{what}{_unit(metric)}", interval, side, bound, len(values), over, metric)


def share(
    what: str,
    part: pd.Series,
    whole: pd.Series,
    *,
    over: Over = "corruption",
    side: Side,
    bound: float,
) -> Measurement:
    """mean(part) / mean(whole), in per cent.

    Unless the whole is clearly positive a share of it means nothing, and the interval is infinite.
    """
    whole_mean = bootstrap_mean(whole.to_numpy())
    if whole_mean.low > 0:
        interval = bootstrap_ratio(part.to_numpy(), whole.to_numpy())
    else:
        estimate = float(part.mean() / whole.mean()) if whole.mean() else np.nan
        interval = Interval(estimate, -np.inf, np.inf, whole_mean.level)
    return Measurement(f"{what}, %", interval, side, bound, len(part), _PLURALS[over], scale=100, digits=0)


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

    def share_of_gain(runs: Runs, metric: str) -> Measurement:
        table = signed(paired(runs, series, metric, severities), metric)
        parts = [table[first.label] - table[second.label] for first, second in (part, whole)]
        return share(f"{metric_info(metric).label}: {what}", *parts, side=side, bound=bound)

    return lambda runs: [share_of_gain(runs, metric) for metric in metrics]


def signed(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A table of `paired` with the sign changed if lower is better, so that higher is always better."""
    better: pd.DataFrame = table * metric_info(metric).sign
    return better


def _measurement(
    what: str, interval: Interval, side: Side, bound: float, count: int, over: Over, metric: str
) -> Measurement:
    scale, digits = (100, 1) if metric_info(metric).percent else (1, 3)
    return Measurement(what, interval, side, bound, count, _PLURALS[over], scale=scale, digits=digits)


def _unit(metric: str) -> str:
    return ", points" if metric_info(metric).percent else ""


def rank_correlation(what: str, splits: pd.DataFrame, *, side: Side, bound: float = 0.0) -> Measurement:
    """Spearman's rank correlation of the columns `divergence` and `value` over splits.

    The interval is a percentile bootstrap that draws whole corruptions with replacement, because the severities of one
    corruption are not independent.
    """
    kinds, kind = np.unique(splits["corruption"].to_numpy(), return_inverse=True)
    x, y = splits["divergence"].to_numpy(), splits["value"].to_numpy()
    drawn = np.random.default_rng(0).integers(len(kinds), size=(_RANK_RESAMPLES, len(kinds)))
    # A resample is described by how often each split is in it, so that all resamples are computed at once.
    counts = np.stack([np.bincount(which, minlength=len(kinds)) for which in drawn])[:, kind].astype(float)
    low, high = np.nanquantile(_correlations(x, y, counts), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    estimate = float(_correlations(x, y, np.ones((1, len(x))))[0])
    interval = Interval(estimate, float(low), float(high), LEVEL)
    return Measurement(what, interval, side, bound, len(kinds), "corruptions", digits=2)


def _correlations(x: Array, y: Array, counts: Array) -> Array:
    """Spearman's rank correlations of the points (x_i, y_i) with point i taken counts[r, i] times.

    NaN if all x or all y are equal.
    """
    total = counts.sum(1, keepdims=True)
    a, b = (_ranks(values, counts) - (total + 1) / 2 for values in (x, y))
    with np.errstate(invalid="ignore"):
        correlations: Array = (counts * a * b).sum(1) / np.sqrt((counts * a * a).sum(1) * (counts * b * b).sum(1))
    return correlations


def _ranks(values: Array, counts: Array) -> Array:
    """The rank of each value if value j occurs counts[r, j] times; equal values share the mean of their ranks.

    rank_i = Σ_j counts_j [v_j < v_i] + (1 + Σ_j counts_j [v_j = v_i]) / 2
    """
    below, equal = values[:, None] < values, values[:, None] == values
    ranks: Array = counts @ (below + 0.5 * equal) + 0.5
    return ranks


def mce(runs: Runs, series: Series, side: Side, bound: float) -> Measurement:
    """The mean corruption error of a series, in per cent."""
    values, over = _mce_values(runs, series)
    interval = bootstrap_mean(values, resamples=BOOTSTRAP_RESAMPLES)
    what = f"mCE of {series.label}, %"
    return Measurement(what, interval, side, bound, len(values), over, digits=2, signed=False)


def mce_gain(first: Series, second: Series) -> Measure:
    """How much lower the mCE of `first` is than that of `second`."""

    def measure(runs: Runs) -> list[Measurement]:
        (first_values, over), (second_values, _) = _mce_values(runs, first), _mce_values(runs, second)
        interval = bootstrap_mean(second_values - first_values, resamples=BOOTSTRAP_RESAMPLES)
        what = f"mCE, points: {first.label} over {second.label}"
        return [Measurement(what, interval, "above", 0.0, len(first_values), over, digits=2)]

    return measure


def _mce_values(runs: Runs, series: Series) -> tuple[Array, str]:
    """Values whose mean is the mCE, and what they are over: images if hits were stored, otherwise corruptions."""
    errors = 1 - series.values(runs, "accuracy", SHIFTED).groupby("corruption")["value"].mean()
    missing = [name for name in ALEXNET_ERRORS if name not in errors.index]
    if missing:
        raise NotMeasured(f"the mCE also needs {', '.join(missing)}")
    hits = _hits(runs, series)
    if len(hits):
        return mce_by_image(hits, _images(runs, series)), "images"
    by_corruption = corruption_errors({name: float(errors[name]) for name in ALEXNET_ERRORS})
    return np.array(list(by_corruption.values())), "corruptions"


def accuracy_gain_by_image(
    runs: Runs, first: Series, second: Series, split: tuple[str, int], side: Side, bound: float = 0.0
) -> Measurement:
    """How much more accurate `first` is than `second` on one split, image by image."""
    correct = [_correct_images(runs, series, split) for series in (first, second)]
    gains = correct[0].astype(float) - correct[1]
    name = "clean images" if split[1] == 0 else str(Split(*split)).replace("_", " ")
    what = f"accuracy, points: {first.label} over {second.label} on {name}"
    interval = bootstrap_mean(gains, resamples=BOOTSTRAP_RESAMPLES)
    return Measurement(what, interval, side, bound, len(gains), "images", scale=100, digits=1)


def _correct_images(runs: Runs, series: Series, split: tuple[str, int]) -> npt.NDArray[np.bool_]:
    hits = _hits(runs, series)
    if len(hits):
        hits = hits[(hits["corruption"] == split[0]) & (hits["severity"] == split[1])]
    if len(hits) != 1:
        raise NotMeasured(
            f"the results of the plan {series.plan} do not say which images {series.label} classified correctly"
        )
    return unpack_hits(hits["hits"].iloc[0], _images(runs, series))


def correct_by_split(runs: Runs, series: Series) -> dict[tuple[str, int], npt.NDArray[np.bool_]]:
    """By (corruption, severity): which images the single network of a series classified correctly."""
    images = _images(runs, series)
    rows = _hits(runs, series)[["corruption", "severity", "hits"]].itertuples(index=False)
    return {(corruption, int(severity)): unpack_hits(packed, images) for corruption, severity, packed in rows}


def _hits(runs: Runs, series: Series) -> pd.DataFrame:
    """The stored hits of a series, one row per split; empty if the plan stored none."""
    hits = runs[series.plan].hits
    if hits.empty:
        return hits
    selected = (hits["strategy"] == str(Setting.parse(series.strategy))) & (hits["method"] == series.method)
    selected &= hits["model"].str.startswith(f"{series.network}/")
    if series.batch_size is not None:
        selected &= hits["batch_size"] == series.batch_size
    rows: pd.DataFrame = hits[selected]
    return rows


def _images(runs: Runs, series: Series) -> int:
    return int(runs[series.plan].card["data"]["images"])
