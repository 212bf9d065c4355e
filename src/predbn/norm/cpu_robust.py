"""Robust moments of groups of finite examples on a CPU, in NumPy, which starts small operations faster than PyTorch.

The equations are those of `robust.py`. Here all groups have n examples, so that positions of quantiles are numbers.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from .cpu_past import Array
from .robust import FEW_EXAMPLES, GAUSSIAN, QUANTILES, TINY, WIDER_FOR_FEW, RobustMoments


def robust_moments_on_cpu(
    mean: Tensor, var: Tensor, eps: float, clean_var: Tensor, scatter: Tensor | float, group: int, bounds: float
) -> RobustMoments:
    """As `robust_moments`, for tensors that can be read."""
    own_scatter = scatter.numpy() if isinstance(scatter, Tensor) else np.float32(scatter)
    with np.errstate(all="ignore"):
        found = _robust_moments(mean.numpy(), var.numpy(), eps, clean_var.numpy(), own_scatter, group, bounds)
    return RobustMoments(*map(torch.from_numpy, found))


def _robust_moments(
    mean: Array, var: Array, eps: float, clean_var: Array, scatter: Array | np.float32, group: int, bounds: float
) -> tuple[Array, Array, Array, Array]:
    channels, least = mean.shape[1], eps + TINY
    examples = np.empty((len(mean), 2 * channels), mean.dtype)  # means on the left, variances on the right
    examples[:, :channels] = mean
    np.add(var, least, out=examples[:, channels:])
    examples = examples.reshape(-1, group, 2 * channels)
    low, centre, high = _quantiles(examples)
    limit = bounds * (1 + WIDER_FOR_FEW / group)
    spread = high[:, :channels] - low[:, :channels]
    spread /= GAUSSIAN
    np.maximum(spread, np.sqrt(scatter * (clean_var + eps)), out=spread)
    log_spread = np.log(high[:, channels:] / low[:, channels:])
    log_spread /= GAUSSIAN
    np.maximum(log_spread, np.sqrt(2 * scatter), out=log_spread)
    factor = np.exp(limit * log_spread)
    step = limit * spread
    smallest, largest = np.empty_like(centre), np.empty_like(centre)
    np.subtract(centre[:, :channels], step, out=smallest[:, :channels])
    np.add(centre[:, :channels], step, out=largest[:, :channels])
    np.divide(centre[:, channels:], factor, out=smallest[:, channels:])
    np.multiply(centre[:, channels:], factor, out=largest[:, channels:])
    np.maximum(examples, smallest[:, None], out=examples)
    np.minimum(examples, largest[:, None], out=examples)
    pooled = np.add.reduce(examples, 1)
    pooled /= group
    pooled_mean, pooled_var = pooled[:, :channels], pooled[:, channels:]
    offsets = examples[:, :, :channels] - pooled_mean[:, None]
    offsets *= offsets
    between = np.add.reduce(offsets, 1)
    between /= group
    pooled_var -= least
    np.maximum(pooled_var, 0, out=pooled_var)
    pooled_var += between
    return pooled_mean, pooled_var, between, spread


def _quantiles(examples: Array) -> list[Array]:
    """`QUANTILES` of each column of [G, n, C], [G, C] each."""
    last = examples.shape[1] - 1
    rows = _sorted_rows(examples)
    steps: dict[int, Array] = {}
    found = []
    for quantile in QUANTILES:
        lower = math.floor(last * quantile)
        if lower not in steps:
            steps[lower] = rows[min(lower + 1, last)] - rows[lower]
        value = steps[lower] * (last * quantile - lower)
        value += rows[lower]
        found.append(value)
    return found


def _sorted_rows(examples: Array) -> list[Array]:
    """The smallest, second smallest, … value of each column. Few are sorted by swapping neighbours, n times.

    Of four, quantiles need only the two in the middle: the larger of two minima and the smaller of two maxima. The
    first and the last row are then any values.
    """
    count = examples.shape[1]
    if count > FEW_EXAMPLES:
        values = np.sort(examples.transpose(0, 2, 1), -1)
        return [values[:, :, i] for i in range(count)]
    rows = [examples[:, i] for i in range(count)]
    if count == 4:
        left, right = examples[:, :2], examples[:, 2:]
        smaller, larger = np.minimum(left, right), np.maximum(left, right)
        a, b = np.maximum(smaller[:, 0], smaller[:, 1]), np.minimum(larger[:, 0], larger[:, 1])
        return [smaller[:, 0], np.minimum(a, b), np.maximum(a, b), larger[:, 1]]
    for start in range(count):
        for i in range(start % 2, count - 1, 2):
            rows[i], rows[i + 1] = np.minimum(rows[i], rows[i + 1]), np.maximum(rows[i], rows[i + 1])
    return rows
