"""Paired intervals of a difference between two sets of predictions on the same examples.

Examples that share something are not independent: pictures of one batch share its statistics, severities of one
corruption share its nature. They are therefore resampled, or counted, in groups. With groups of one example each the
interval of a mean is that of the paired t-test.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from predbn.common import MetricError

from .calibration import bin_of, equal_width_edges
from .intervals import Interval, Values, t_quantile, to_array, to_pairs

Groups = npt.NDArray[np.int64]
_MIN_GROUPS, _RESAMPLES = 20, 2000


def consecutive_groups(count: int, size: int) -> Groups:
    """The group of each of `count` examples in a stream: `size` consecutive ones, but 20 groups if possible.

    With a handful of groups the variance of their means is hardly known. Groups smaller than a batch are better than
    that, although they treat the halves of a batch as independent.
    """
    return np.arange(count) // max(1, min(size, count // _MIN_GROUPS))


def paired_interval(
    first: Values, second: Values, *, groups: Groups | None = None, level: float = 0.95, comparisons: int = 1
) -> Interval:
    """The interval of mean(first) − mean(second), where value i of both belongs to the same example.

    With the differences d_i and their groups g = 1 … k, the standard error is that of a mean of clusters,

        SE² = k/(k−1) · Σ_g (Σ_{i∈g} (d_i − d̄))² / n²,

    and the interval is d̄ ± t·SE with Student's t of k − 1 degrees of freedom. If it is one of several `comparisons`, of
    which all must hold simultaneously with probability `level`, each gets the level 1 − (1 − level)/comparisons
    (Bonferroni). With fewer than two groups the interval is infinite.
    """
    a, b = to_pairs(first, second)
    if not 0 < level < 1 or comparisons < 1:
        raise MetricError(f"level={level}, comparisons={comparisons}; give a share such as 0.95, and 1 or more")
    difference = a - b
    mean = float(difference.mean())
    which = np.arange(len(a)) if groups is None else np.unique(groups, return_inverse=True)[1]
    k = int(which.max()) + 1
    if k < 2:
        return Interval(mean, -math.inf, math.inf, level)
    sums = np.bincount(which, weights=difference - mean, minlength=k)
    error = math.sqrt(k / (k - 1) * float(sums @ sums)) / len(a)
    margin = t_quantile(k, 1 - (1 - level) / comparisons) * error
    return Interval(mean, mean - margin, mean + margin, level)


def paired_ece_interval(
    first: tuple[Values, Values],
    second: tuple[Values, Values],
    *,
    groups: Groups | None = None,
    bins: int = 10,
    level: float = 0.95,
) -> Interval:
    """The bootstrap interval of ECE(first) − ECE(second), each given as (confidences, hits) of the same examples.

    The ECE is not a mean over examples. A group contributes its sums of confidence − hit to each bin, groups are drawn
    with replacement, and the sums of those that were drawn give an ECE.
    """

    def sums(confidences: Values, hits: Values) -> npt.NDArray[np.float64]:
        confidence, hit = to_array(confidences), to_array(hits)
        bin_numbers = bin_of(torch.from_numpy(confidence), equal_width_edges(bins)).numpy()
        cells = np.bincount(which * bins + bin_numbers, weights=confidence - hit, minlength=k * bins)
        return cells.astype(np.float64).reshape(k, bins)

    count = len(to_array(first[0]))
    which = np.arange(count) if groups is None else np.unique(groups, return_inverse=True)[1]
    k = int(which.max()) + 1
    sizes = np.bincount(which, minlength=k)
    gaps = [sums(*first), sums(*second)]
    estimate = float(np.abs(gaps[0].sum(0)).sum() - np.abs(gaps[1].sum(0)).sum()) / count
    if k < 2:
        return Interval(estimate, -math.inf, math.inf, level)
    draws = np.random.default_rng(0).multinomial(k, np.full(k, 1 / k), size=_RESAMPLES).astype(np.float64)
    eces = [np.abs(draws @ gap).sum(1) / (draws @ sizes) for gap in gaps]
    low, high = np.quantile(eces[0] - eces[1], [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level)
