"""Bootstrap confidence intervals of a mean, of the difference of two means and of their ratio.

The interval of each is the percentile interval of Efron (1979): values are drawn with replacement, as many as there
are, `resamples` times, and the interval holds the middle `level` of the results. It says how far the result would move
with other values of the same kind: give one value per split for a statement about splits, one per example for a
statement about examples.
"""

from __future__ import annotations

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
    array = to_array(values)
    return _interval(float(array.mean()), _resampled_means(array[None], resamples, level, seed)[0], level)


def bootstrap_difference(
    first: Values, second: Values, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The paired interval of mean(first) − mean(second).

    Value i of both belongs to the same split or example, and both are drawn together: what makes a split hard makes it
    hard for both and cancels in the difference. If the interval does not contain 0, the two differ.
    """
    a, b = to_pairs(first, second)
    return bootstrap_mean(a - b, resamples=resamples, level=level, seed=seed)


def bootstrap_ratio(
    numerator: Values, denominator: Values, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The paired interval of mean(numerator) / mean(denominator).

    It is a ratio of means and not a mean of ratios, so a pair whose denominator is near 0 does no harm. It means
    something only if the mean of the denominators is clearly not 0.
    """
    a, b = to_pairs(numerator, denominator)
    if not b.mean():
        raise MetricError("the denominators have mean 0; there is no share of nothing")
    above, below = _resampled_means(np.stack((a, b)), resamples, level, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = above / below
    return _interval(float(a.mean() / b.mean()), ratios[~np.isnan(ratios)], level)


def _resampled_means(rows: npt.NDArray[np.float64], resamples: int, level: float, seed: int) -> npt.NDArray[np.float64]:
    """The means of each row, [rows, resamples]; the same draws for all rows."""
    with needs_extra("eval"):
        from scipy.stats import bootstrap  # here, because importing it takes most of a second

    if not 0 < level < 1:
        raise MetricError(f"level={level}; give a share between 0 and 1, such as 0.95")
    if resamples < 1:
        raise MetricError(f"resamples={resamples}; give 1 or more")
    n = rows.shape[1]
    if n == 1:  # which scipy refuses
        return rows.repeat(resamples, axis=1)
    result = bootstrap(
        (rows,),
        np.mean,
        axis=1,
        n_resamples=resamples,
        batch=max(1, _DRAWS_PER_BATCH // n),
        method="percentile",
        random_state=np.random.default_rng(seed),
    )
    means: npt.NDArray[np.float64] = result.bootstrap_distribution
    return means


def _interval(estimate: float, resampled: npt.NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level)


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
