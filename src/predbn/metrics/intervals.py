"""Confidence intervals of means: by bootstrap, and by Student's t distribution.

The bootstrap interval is the percentile interval of Efron (1979): values are drawn with replacement, as many as there
are, `resamples` times, and the interval holds the middle `level` of the results. It says how far the result would move
with other values of the same kind: give one value per split for a statement about splits, one per example for a
statement about examples.

Few values, such as 19 corruptions, ten networks or five draws, need the t distribution: over five normal values the
95 % interval of the bootstrap covers the true mean in 84 % of all cases, that of t in 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from predbn.common import MetricError, needs_extra

Values: TypeAlias = Sequence[float] | npt.NDArray[np.floating] | Tensor

_DRAWS_PER_BATCH = 1 << 22


@dataclass(frozen=True)
class Interval:
    """An estimate, and the bounds between which it lies with probability `level`."""

    estimate: float
    low: float
    high: float
    level: float


def bootstrap_mean(values: Values, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0) -> Interval:
    """The interval of mean(values)."""
    if not 0 < level < 1:
        raise MetricError(f"level={level}; give a share between 0 and 1, such as 0.95")
    if resamples < 1:
        raise MetricError(f"resamples={resamples}; give 1 or more")
    array, generator = to_array(values), np.random.default_rng(seed)
    n, means = len(array), np.empty(resamples)
    batch = max(1, _DRAWS_PER_BATCH // n)
    for start in range(0, resamples, batch):
        drawn = generator.integers(n, size=(min(batch, resamples - start), n))
        means[start : start + batch] = array[drawn].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(array.mean()), float(low), float(high), level)


def bootstrap_difference(first: Values, second: Values) -> Interval:
    """The paired 95 % interval of mean(first) − mean(second).

    Value i of both belongs to the same split or example, and both are drawn together: what makes a split hard makes it
    hard for both and cancels in the difference. If the interval does not contain 0, the two differ.
    """
    a, b = to_pairs(first, second)
    return bootstrap_mean(a - b)


def t_mean(values: Values, *, level: float = 0.95) -> Interval:
    """mean ± t·s/√n, with t the quantile of Student's distribution; infinite for a single value."""
    array = to_array(values)
    mean = float(array.mean())
    if len(array) == 1:
        return Interval(mean, -math.inf, math.inf, level)
    half = t_quantile(len(array), level) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return Interval(mean, mean - half, mean + half, level)


def t_ratio(numerator: Values, denominator: Values, *, level: float = 0.95) -> Interval:
    """The paired interval of mean(numerator) / mean(denominator) of Fieller (1954).

    It has the ratios ρ for which a t test does not refute mean(numerator − ρ·denominator) = 0, so it is above or below
    a bound exactly if that test says so. It is infinite if the mean of the denominators is not clearly different from
    0, because any ratio would do then.
    """
    a, b = to_pairs(numerator, denominator)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    estimate = mean_a / mean_b if mean_b else math.nan
    if len(a) == 1:
        return Interval(estimate, -math.inf, math.inf, level)
    (var_a, covariance), (_, var_b) = np.cov(a, b) / len(a) * t_quantile(len(a), level) ** 2
    # mean(a − ρ·b)² = t²·var(a − ρ·b) is the quadratic equation x·ρ² − 2·y·ρ + z = 0.
    x, y, z = mean_b**2 - var_b, mean_a * mean_b - covariance, mean_a**2 - var_a
    if x <= 0:
        return Interval(estimate, -math.inf, math.inf, level)
    root = math.sqrt(max(0.0, y * y - x * z))
    return Interval(estimate, float((y - root) / x), float((y + root) / x), level)


def t_quantile(count: int, level: float) -> float:
    """The half width of an interval of that level over `count` values, in standard errors of their mean."""
    with needs_extra("eval"):
        from scipy.stats import t  # here, because importing it takes most of a second

    return float(t.ppf((1 + level) / 2, count - 1))


def to_pairs(first: Values, second: Values) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Both as arrays; an error if they have different lengths."""
    a, b = to_array(first), to_array(second)
    if len(a) != len(b):
        raise MetricError(f"{len(a)} values are to be paired with {len(b)}; give both for the same splits or examples")
    return a, b


def to_array(values: Values) -> npt.NDArray[np.float64]:
    """The values as an array of one or more finite numbers."""
    array = np.asarray(values.detach().cpu().double() if isinstance(values, Tensor) else values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise MetricError(f"values have shape {array.shape}; give a list of one or more numbers")
    if not np.isfinite(array).all():
        raise MetricError("values hold NaN or infinity; a mean over them says nothing")
    return array
