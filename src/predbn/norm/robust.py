"""Moments in which no example has much influence.

One outlier among a hundred examples moves mean and variance of the whole batch, and whoever may choose the pixels of
some examples can steer the predictions of all others. For each example i let m_i and v_i be mean and variance of its
values in a channel. They are clipped to what is usual in the batch:

    |m_i − M| ≤ c·S,    |log v_i − log V| ≤ c·T,    c = ½·(1 + 20/n)    or    c = 1.5·(1 + 20/n),

where M and V are the medians over the n examples. S is the standard deviation of a Gaussian with the same 35 % and 65 %
quantiles, (Q₆₅ − Q₃₅)/0.77, so that it takes more than a third of the examples to move it far; T is the same for log v.
A shift moves all examples, and with them the medians: it is not held back. Quantiles of few examples are unreliable;
because of 20/n, three examples pass as they are. The wider bounds are for strategies that know which classes a batch
holds: examples of few classes differ little from each other, those of a rare class much from all others, and narrow
bounds would take the classes for outliers.

Clipping also moves the statistics of a batch without outliers, because examples are not spread evenly
about their median. Calibration measures what it does to clean examples: it moves their mean by −b·S, and multiplies the
variance within examples by w and that between them by u. With the clipped statistics μ', σ'² = within' + between' of
a batch,

    μ = μ' + g·b·S,    σ² = within'/w^g + between'/u^g,    g = exp(−6/n).

g is about the share of the difference that n examples show, for examples from gamma distributions. Wide bounds clip
less, and examples of one class hardly at all: there nothing is corrected.

In some channels most examples have the same value, and S and T would be zero. They are at least a quarter of what the
standard deviation of clean examples is, and all of it in a channel where clean examples have an S of less than a third
of their standard deviation. Without calibration the standard deviation of all values takes its place: only crude
outliers are held back then.

Examples that are not finite are left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .backend import Bounds
from .segments import Segments
from .statistics import Statistics
from .tracing import is_readable, is_tracing

QUANTILES = 0.35, 0.5, 0.65
GAUSSIAN = 0.7706
"""The distance between the 35 % and the 65 % quantile of a Gaussian with standard deviation 1."""
TINY = 1e-30
"""Added to variances that may be zero without eps, because their logarithm is taken."""
NARROW, WIDE = 0.5, 1.5
"""c for many examples."""
WIDER_FOR_FEW = 20.0
"""c is multiplied by 1 + 20/n."""
CLIPPING_DECAY = 6.0
"""g = exp(−6/n)."""
_MIN_SPREAD, _HEAVY_TAIL = 1 / 4, 1 / 3
"""S is at least a quarter of the standard deviation of clean examples, or all of it if theirs is less than a third."""
_MAX_CORRECTION = 16.0
"""Variances are corrected by at most this factor."""


class RobustMoments(NamedTuple):
    """The mean and variance of a batch, the part of the variance that lies between its examples, and their spread S,
    [C] or [S, C] each."""

    mean: Tensor
    var: Tensor
    between: Tensor
    spread: Tensor


def bounded_moments(
    mean: Tensor,
    var: Tensor,
    is_finite: Tensor,
    eps: float,
    bounds: Bounds,
    size: Tensor | int,
    segments: Segments | None,
) -> tuple[Statistics, Tensor]:
    """Statistics with bounded influence, corrected for what clipping does to clean examples, and what lies between.

    mean, var   the moments of the examples, [N, C] each
    is_finite   examples that are left out are False, [N]
    size        how many examples there are, or [S, 1]
    """
    moments = robust_moments(mean, var, is_finite, eps, bounds.clean_var, bounds.scatter, segments, bounds.limit)
    if bounds.clipping is None:
        return Statistics(moments.mean, moments.var), moments.between
    size = size.to(mean.dtype) if isinstance(size, Tensor) else size
    return correct_clipping(moments, bounds.clipping.to(mean), size), moments.between


def is_finite_example(mean: Tensor, var: Tensor) -> Tensor:
    """Which examples are finite, [N], from their moments [N, C]."""
    return (mean.detach().abs().amax(1) + var.detach().amax(1)).isfinite()


def robust_moments(
    mean: Tensor,
    var: Tensor,
    is_finite: Tensor,
    eps: float,
    clean_var: Tensor,
    scatter: Tensor | float,
    segments: Segments | None = None,
    limit: float = NARROW,
) -> RobustMoments:
    """The moments of a batch from those of its examples, [N, C] each; examples that are not finite, [N], are left out.

    `clean_var` is the variance of all clean values, and `scatter` that of the means of clean examples relative to it,
    [C]. With segments there is one row for each of them; those of about the same size are handled together.
    """
    examples = torch.cat([mean, var + (eps + TINY)], 1)
    if segments is None:
        result = _robust_moments(examples[None], is_finite[None], eps, clean_var, scatter, limit)
        return RobustMoments(*(t[0] for t in result))
    buckets = segments.buckets(mean.device)
    parts = [
        _robust_moments(
            examples.index_select(0, bucket.rows).unflatten(0, (-1, bucket.size)),
            (is_finite[bucket.rows] & bucket.is_row).unflatten(0, (-1, bucket.size)),
            eps,
            clean_var,
            scatter,
            limit,
        )
        for bucket in buckets
    ]
    if len(parts) == 1:
        return parts[0]
    order = torch.cat([bucket.segments for bucket in buckets]).argsort()
    return RobustMoments(*(torch.cat(values)[order] for values in zip(*parts, strict=True)))


def _robust_moments(
    examples: Tensor, is_used: Tensor, eps: float, clean_var: Tensor, scatter: Tensor | float, limit: float
) -> RobustMoments:
    """Of S segments, from the means and variances of the examples that are used, side by side, [S, n, 2·C]."""
    is_used = is_used[..., None]
    # Infinite values come last when sorted, and after clipping they are numbers whose weight can be zero.
    examples = torch.where(is_used, examples, torch.inf)
    count = is_used.sum(1)
    quantiles = _quantiles(examples, count)
    (low, centre, high), (low_var, centre_var, high_var) = (q.unbind(1) for q in quantiles.chunk(2, 2))
    if not isinstance(scatter, Tensor):
        scatter = torch.full_like(clean_var, scatter)
    bound = limit * (1 + WIDER_FOR_FEW / count)
    spread = torch.maximum((high - low) / GAUSSIAN, (scatter * (clean_var + eps)).sqrt())
    log_spread = torch.maximum((high_var / low_var).log() / GAUSSIAN, (2 * scatter).sqrt())
    step, factor = bound * spread, (bound * log_spread).exp()
    means, variances = examples.chunk(2, 2)
    means = means.clamp((centre - step)[:, None], (centre + step)[:, None])
    variances = variances.clamp((centre_var / factor)[:, None], (centre_var * factor)[:, None])
    weight = is_used.to(means.dtype) / count[:, None]
    pooled_mean = (weight * means).sum(1)
    between = (weight * (means - pooled_mean[:, None]).square()).sum(1)
    pooled_var = ((weight * variances).sum(1) - (eps + TINY)).clamp(min=0) + between
    return RobustMoments(pooled_mean, pooled_var, between, spread)


def min_scatter(mean: Tensor, var: Tensor) -> Tensor:
    """What `robust_moments` takes for the variance of the means of examples at least, relative to that of all values.

    `mean` are the means of clean examples, [N, C], `var` is the variance of all clean values, [C].
    """
    count = torch.full((1, 1), len(mean), device=mean.device)
    low, _, high = _quantiles(mean[None], count)[0]
    scatter = mean.var(0, correction=0)
    has_heavy_tails = ((high - low) / GAUSSIAN).square() < _HEAVY_TAIL**2 * scatter
    return torch.where(has_heavy_tails, scatter, _MIN_SPREAD**2 * scatter) / var


def clipping_of(mean: Tensor, var: Tensor, clipped: RobustMoments) -> Tensor:
    """What clipping does to clean examples with these moments, [N, C] each: b, 1/w and 1/u, [3, C]."""
    offset = (mean.mean(0) - clipped.mean) / clipped.spread.clamp(min=TINY)
    pairs = (var.mean(0), clipped.var - clipped.between), (mean.var(0, correction=0), clipped.between)
    floor = 1e-6 * (clipped.var + TINY)
    factors = (((before + floor) / (after + floor)).clamp(max=_MAX_CORRECTION) for before, after in pairs)
    return torch.stack([offset, *factors])


def correct_clipping(moments: RobustMoments, clipping: Tensor, n: Tensor | float) -> Statistics:
    """The moments of a batch of n examples without what clipping does to clean ones."""
    is_number = not isinstance(n, Tensor) and not is_tracing()  # in a graph it may be a symbol
    share = (
        math.exp(-CLIPPING_DECAY / max(n, 1)) if is_number else (moments.mean.new_full((), -CLIPPING_DECAY) / n).exp()
    )
    offset, within, between = clipping
    var = (moments.var - moments.between) * within**share + moments.between * between**share
    return Statistics(moments.mean + share * offset * moments.spread, var)


def _quantiles(examples: Tensor, count: Tensor) -> Tensor:
    """`QUANTILES` of the first `count` [G, 1] of the sorted values of each column of [G, n, C], as [G, 3, C]."""
    values = _sorted(examples)
    last = (count - 1).clamp(min=0)
    position = torch.cat([last.to(values.dtype) * quantile for quantile in QUANTILES], 1)
    lower = position.floor().long()
    upper = torch.minimum(lower + 1, last)
    rows, start = values.flatten(0, 1), torch.arange(len(values), device=values.device)[:, None] * values.shape[1]
    below, above = (rows.index_select(0, (start + index).flatten()) for index in (lower, upper))
    return torch.lerp(below, above, (position - lower).view(-1, 1)).view(len(values), len(QUANTILES), -1)


def _sorted(values: Tensor) -> Tensor:
    """[S, n, C] sorted along n; on a CPU by NumPy, which takes a tenth of the time."""
    rows = values.transpose(1, 2).contiguous()  # sorting along contiguous memory takes a fifth of the time
    sorted_rows = torch.from_numpy(np.sort(rows.numpy(), -1)) if is_readable(values) else rows.sort(-1).values
    return sorted_rows.transpose(1, 2)
