"""Moments of a batch, of each of its examples, and of its segments, in PyTorch.

Each function has one meaning and two routes. The *plain* route is written in ordinary differentiable operators; it is
what autograd, torch.compile, torch.export, tracing and torch.func see. The *native* route is taken on a CPU where only
the result is needed, which is most of the time: it makes no full-size temporary.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from .segments import Segments
from .tracing import is_eager, is_native, is_transformed

_SQUARED_OFFSET_LIMIT = 4.0
"""Where mean² > 4·(var + eps), E[x²] − mean² has lost too many digits and is computed again in two passes."""
_MIN_PART_LENGTH, _MAX_PART_LENGTH = 100, 800
"""Long sums are cut into parts of about these lengths: adding up short parts in double precision is more precise."""
_MAX_PART_SIZE = 2**18
"""Values that are processed at a time where a copy of them is needed: they fit into the cache."""


def stats_dtype(x: Tensor) -> torch.dtype:
    """Statistics of half and bfloat16 data are kept in single precision."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def moments(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel of x, [N, C, …].

    `eps` is what will be added to the variance: it tells how precisely the variance of an almost constant channel has
    to be known.
    """
    dims = [0, *range(2, x.dim())]
    if x.numel() == 0:  # the empty share of a batch that is spread over processes
        zeros = x.sum(dims, dtype=stats_dtype(x))
        return zeros, zeros
    if not (x.is_cpu and is_native(x)):
        var, mean = torch.var_mean(x.to(stats_dtype(x)), dims, correction=0)
        return mean, var
    return _moments_channels_first(x, eps) if _is_channels_first(x) else _native_moments(x)


def example_moments(x: Tensor, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each example and channel, [N, C] each. `eps` as for `moments`."""
    if x.dim() == 2 or (is_eager(x) and math.prod(x.shape[2:]) == 1):
        x = x.to(stats_dtype(x)).flatten(1)
        return x, torch.zeros_like(x)
    if not x.is_cpu or is_transformed(x):
        var, mean = torch.var_mean(x.to(stats_dtype(x)), list(range(2, x.dim())), correction=0)
        return mean, var
    if not (is_native(x) and _is_channels_first(x)):
        rows_last = as_rows(x)
        return _two_pass_in_parts(x.flatten(2), 2) if rows_last is None else _two_pass_in_parts(rows_last, 1)
    mean, square = (t.to(x.dtype) for t in _example_squares(x))
    offset = mean * mean
    var = (square - offset).clamp_(min=0)
    imprecise = offset.mean(0) > _SQUARED_OFFSET_LIMIT * (square.mean(0) - offset.mean(0) + eps)
    if imprecise.any():
        channels = imprecise.nonzero().squeeze(1)
        mean[:, channels], var[:, channels] = _two_pass(x.index_select(1, channels).flatten(2), 2)
    return mean, var


def pooled(
    mean: Tensor, var: Tensor, segments: Segments, sizes: Tensor, is_finite: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each segment, [S, C] each, from those of its examples, [N, C] each.

    With mean m_i and variance v_i of its n examples, a segment has

        μ = Σ m_i / n,    σ² = Σ (v_i + (m_i − μ)²) / n.

    `sizes` are the n, [S, 1]. Examples that are not finite, [N], do not count and are not among them.
    """

    def finite(values: Tensor) -> Tensor:
        return values if is_finite is None else torch.where(is_finite[:, None], values, 0.0)

    total = segments.sum(finite(mean)) / sizes
    return total, segments.sum(finite(var + (mean - segments.repeat(total)).square())) / sizes


def as_rows(x: Tensor) -> Tensor | None:
    """x as [N, positions, C] if that needs no copy, as in channels_last; None otherwise, and for other devices."""
    if not x.is_cpu or x.numel() == 0 or is_transformed(x):
        return None
    last = x[:, None] if x.dim() == 2 else x.movedim(1, -1)
    return last.flatten(1, -2) if last.is_contiguous() else None


def _is_channels_first(x: Tensor) -> bool:
    """Whether these are contiguous single-precision maps on a CPU."""
    if not (x.is_cpu and x.dtype == torch.float32 and x.dim() > 2 and x.is_contiguous()):
        return False
    return x.numel() > x.shape[0] * x.shape[1]


def _native_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """PyTorch's two-pass kernel. On a CPU its results have the precision of the buffers it is given."""
    running_mean = running_var = None
    if x.dtype != stats_dtype(x):
        running_mean, running_var = torch.zeros(2, x.shape[1], dtype=stats_dtype(x))
    return torch.batch_norm_update_stats(x, running_mean, running_var, 0.0)


def _moments_channels_first(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`moments` of channels-first data, for which PyTorch's kernel processes one value at a time.

    Two vectorised reductions along contiguous memory take its place. Maps smaller than the batch are reduced over the
    batch first, position by position. Larger ones give Σx and Σx² of each row, and var = Σx²/count − mean².
    """
    n, c = x.shape[:2]
    positions = x[0, 0].numel()
    if positions <= n:
        means, variances = (t.view(c, positions) for t in _native_moments(x.view(n, c * positions)))
        mean = means.mean(1)
        return mean, variances.add_(means.sub_(mean[:, None]).square_()).mean(1)
    example_mean, example_square = _example_squares(x)
    mean64 = example_mean.mean(0, dtype=torch.float64)
    var64 = (example_square.mean(0, dtype=torch.float64) - mean64 * mean64).clamp_(min=0)
    mean, var = mean64.float(), var64.float()
    imprecise = mean * mean > _SQUARED_OFFSET_LIMIT * (var + eps)
    if imprecise.any():
        channels = imprecise.nonzero().squeeze(1)
        mean[channels], var[channels] = _native_moments(x.index_select(1, channels))
    return mean, var


def _example_squares(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and mean square of each example and channel of contiguous maps, [N, C] each."""
    n, c = x.shape[:2]
    positions = x[0, 0].numel()
    mean, square = _sums_of_rows(x.view(n * c, positions))
    return mean.div_(positions).view(n, c), square.div_(positions).view(n, c)


def _two_pass_in_parts(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Mean and biased variance over a dimension of [N, …, …], in parts that fit into the cache."""
    part = max(1, _MAX_PART_SIZE * len(rows) // max(1, rows.numel()))
    if part >= len(rows):
        return _two_pass(rows, dim)
    means, variances = zip(*(_two_pass(part_rows, dim) for part_rows in rows.split(part)), strict=True)
    return torch.cat(means), torch.cat(variances)


def _two_pass(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    wide = rows.to(stats_dtype(rows))
    mean = wide.mean(dim, keepdim=True)
    return mean.squeeze(dim), (wide - mean).square_().mean(dim)


def _sums_of_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Σx and Σx² of each row."""
    length = rows.shape[1]
    if length <= _MAX_PART_LENGTH:
        return rows.sum(1), torch.linalg.vector_norm(rows, dim=1).square_()
    part = _part_length(length)
    whole = length - length % part
    parts = rows.view(-1, part) if whole == length else rows[:, :whole].unflatten(1, (-1, part))
    total = parts.sum(-1).view(len(rows), -1).sum(1, dtype=torch.float64)
    squares = torch.linalg.vector_norm(parts, dim=-1).view(len(rows), -1).double().square_().sum(1)
    if whole < length:
        rest = rows[:, whole:]
        total += rest.sum(1)
        squares += torch.linalg.vector_norm(rest, dim=1).double().square_()
    return total, squares


@cache
def _part_length(length: int) -> int:
    """The largest suitable divisor; if there is none, a part is left over, which takes longer."""
    divisors = range(_MAX_PART_LENGTH, _MIN_PART_LENGTH, -1)
    return next((part for part in divisors if length % part == 0), _MAX_PART_LENGTH)
