"""Intervals for a mean, and for the difference of two, without assuming how values are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from predbn.common import MetricError

Values: TypeAlias = Sequence[float] | npt.NDArray[np.floating] | Tensor

_DRAWS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Interval:
    """An estimate, and the bounds between which it lies with probability `level`."""

    estimate: float
    low: float
    high: float
    level: float


def bootstrap_mean(values: Values, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0) -> Interval:
    """The percentile bootstrap interval of a mean (Efron 1979).

    The values are drawn with replacement, as many as there are, `resamples` times; the interval holds the
    middle `level` of the means. It says how far the mean would move with other values of the same kind:
    give one value a split for a statement about splits, one an example for one about examples.
    """
    array = _array(values)
    return _interval(float(array.mean()), _means(array[None], resamples, level, seed)[0], level)


def bootstrap_difference(
    first: Values, second: Values, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The paired interval of mean(first) − mean(second).

    Value i of both belongs to the same split or example, and both are drawn together: what makes a split
    hard makes it hard for both and drops out of the difference. An interval without 0 is a difference.
    """
    a, b = _array(first), _array(second)
    if len(a) != len(b):
        raise MetricError(f"{len(a)} values are to be paired with {len(b)}; give both for the same splits or examples")
    return bootstrap_mean(a - b, resamples=resamples, level=level, seed=seed)


def bootstrap_ratio(
    numerator: Values, denominator: Values, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The paired interval of mean(numerator) / mean(denominator): which share of one thing another is.

    It is a ratio of means and not a mean of ratios, so that a pair whose denominator is near 0 does no harm. It says
    something where the denominator's mean is clearly not 0.
    """
    a, b = _array(numerator), _array(denominator)
    if len(a) != len(b):
        raise MetricError(f"{len(a)} values are to be paired with {len(b)}; give both for the same splits or examples")
    if not b.mean():
        raise MetricError("the denominators have mean 0; there is no share of nothing")
    above, below = _means(np.stack((a, b)), resamples, level, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = above / below
    return _interval(float(a.mean() / b.mean()), ratios[~np.isnan(ratios)], level)


def _means(rows: npt.NDArray[np.float64], resamples: int, level: float, seed: int) -> npt.NDArray[np.float64]:
    """The means of each row over the same draws with replacement, [rows, resamples]."""
    if not 0 < level < 1:
        raise MetricError(f"level={level}; give a share between 0 and 1, such as 0.95")
    if resamples < 1:
        raise MetricError(f"resamples={resamples}; give 1 or more")
    generator, n = np.random.default_rng(seed), rows.shape[1]
    at_once = max(1, _DRAWS_AT_ONCE // n)
    drawn = (generator.integers(n, size=(min(at_once, resamples - done), n)) for done in range(0, resamples, at_once))
    return np.concatenate([rows[:, which].mean(2) for which in drawn], axis=1)


def _interval(estimate: float, means: npt.NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level)


def _array(values: Values) -> npt.NDArray[np.float64]:
    array = np.asarray(values.detach().cpu().double() if isinstance(values, Tensor) else values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise MetricError(f"values have shape {array.shape}; give a list of one or more numbers")
    if not np.isfinite(array).all():
        raise MetricError("values hold NaN or infinity; a mean over them says nothing")
    return array
