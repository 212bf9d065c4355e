"""Student's t intervals of a mean and of a ratio of means.

They are for few values, such as 19 corruptions, ten networks or five draws, for which a percentile bootstrap is too
narrow: over five normal values its 95 % interval covers the true mean in 84 % of all cases, that of t in 95 %. They use
no random numbers.
"""

from __future__ import annotations

import math

import numpy as np

from predbn.common import needs_extra

from .bootstrap import Interval, Values, to_array, to_pairs


def t_mean(values: Values, *, level: float = 0.95) -> Interval:
    """mean ± t·s/√n, with t the quantile of Student's distribution; infinite for a single value."""
    array = to_array(values)
    mean = float(array.mean())
    if len(array) == 1:
        return Interval(mean, -math.inf, math.inf, level)
    half = _quantile(len(array), level) * float(array.std(ddof=1)) / math.sqrt(len(array))
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
    (var_a, covariance), (_, var_b) = np.cov(a, b) / len(a) * _quantile(len(a), level) ** 2
    # mean(a − ρ·b)² = t²·var(a − ρ·b) is the quadratic equation x·ρ² − 2·y·ρ + z = 0.
    x, y, z = mean_b**2 - var_b, mean_a * mean_b - covariance, mean_a**2 - var_a
    if x <= 0:
        return Interval(estimate, -math.inf, math.inf, level)
    root = math.sqrt(max(0.0, y * y - x * z))
    return Interval(estimate, float((y - root) / x), float((y + root) / x), level)


def _quantile(count: int, level: float) -> float:
    with needs_extra("eval"):
        from scipy.stats import t  # here, because importing it takes most of a second

    return float(t.ppf((1 + level) / 2, count - 1))
