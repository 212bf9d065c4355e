"""Moments of a batch, of each of its examples, and of its segments, in PyTorch.

Each function has one meaning and two routes. The *plain* route is written in ordinary differentiable operators; it is
what autograd, torch.compile, torch.export, tracing and torch.func see. The *native* route is taken on a CPU where only
the result is needed, which is most of the time: it makes no full-size temporary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from .segments import Segments
from .statistics import pool_central_moments
from .tracing import is_eager, is_native, is_transformed

_SQUARED_OFFSET_LIMIT = 4.0
"""Where mean² > 4·(var + eps), E[x²] − mean² has lost too many digits and is computed again in two passes."""
_MAX_PART_LENGTH = 800
"""Long sums are cut into parts of at most this length: adding up short parts in double precision is more precise."""
_MAX_ROWS, _MAX_HALF_LENGTH = 128, 2048
"""How many rows, and how many values of maps in half precision, PyTorch's kernel may add up in single precision."""
_MAX_PART_SIZE = 2**19
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
    return _native_moments(x, eps)


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
    mean: Tensor, var: Tensor, segments: Segments | None, sizes: Tensor | int, is_finite: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each segment, [S, C] each, or of all examples, from those of the examples, [N, C].

    With mean m_i and variance v_i of its n examples, a segment has

        μ = Σ m_i / n,    σ² = Σ (v_i + (m_i − μ)²) / n.

    `sizes` are the n, [S, 1]. Examples that are not finite, [N], do not count and are not among them.
    """

    def finite(values: Tensor) -> Tensor:
        return values if is_finite is None else torch.where(is_finite[:, None], values, 0.0)

    if segments is None:
        total = finite(mean).sum(0) / sizes
        return total, finite(var + (mean - total).square()).sum(0) / sizes
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


def _native_moments(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`moments` on a CPU: those of parts so short that single precision is enough to add them up, pooled.

    A sum of a million values by PyTorch's kernel is right to 1e-3 only. The kernel is fast on rows, which channels-last
    data are, and maps smaller than the batch, position by position. It is fast on other maps in half precision too, but
    not in single precision.
    """
    if x.dtype == torch.float64:
        return _kernel_moments(x)
    rows = as_rows(x)
    if rows is not None:
        return _moments_of_rows(rows.flatten(0, 1), x.shape[1])
    n, c = x.shape[:2]
    positions = math.prod(x.shape[2:])
    if x.is_contiguous() and positions <= n:
        return _moments_of_rows(x.view(n, -1), c)
    if x.is_contiguous() and x.dtype == torch.float32:
        return _moments_of_squares(x, eps)
    length = positions if positions <= _MAX_PART_LENGTH else _part_length(positions)
    if x.is_contiguous() and positions % length == 0:
        return _in_parts(x.view(n, -1, length), max(1, _MAX_HALF_LENGTH // length), c, _kernel_moments)
    size = max(1, _MAX_PART_SIZE // (c * positions))
    return _in_parts(x, size, c, lambda part: _native_moments(part.float().contiguous(), eps))


def _moments_of_rows(rows: Tensor, c: int) -> tuple[Tensor, Tensor]:
    """Of [M, C · P]. The kernel sees rows of several parts side by side, as one row of more channels."""
    length = len(rows) if len(rows) <= _MAX_ROWS else _part_length(len(rows), _MAX_ROWS)
    at_once = max(1, _MAX_PART_SIZE // (length * rows.shape[1]))
    return _in_parts(rows, length, c, lambda part: _kernel_moments(part.view(min(length, len(part)), -1)), at_once)


def _in_parts(
    x: Tensor, size: int, c: int, moments_of: Callable[[Tensor], tuple[Tensor, Tensor]], at_once: int = 1
) -> tuple[Tensor, Tensor]:
    """The moments of each channel of [N, C · P, …] from those of parts of this size, some at once, and of the rest."""
    positions = x.shape[1] // c
    if len(x) <= size:
        return _over_parts([moments_of(x)], c, positions)
    whole = len(x) - len(x) % size
    parts = _over_parts([moments_of(part) for part in x[:whole].split(size * at_once)], c, positions)
    if whole == len(x):
        return parts
    return pool_central_moments(parts, _over_parts([moments_of(x[whole:])], c, positions), 1 - whole / len(x))


def _over_parts(moments: list[tuple[Tensor, Tensor]], c: int, positions: int) -> tuple[Tensor, Tensor]:
    """The moments [C] from those of as many values each, [… · C · P]."""
    means, variances = moments[0] if len(moments) == 1 else map(torch.cat, zip(*moments, strict=True))
    if len(means) == c:
        return means, variances
    means = means.view(-1, c, positions).double()
    mean = means.mean((0, 2))
    var = means.sub_(mean[:, None]).square_().add_(variances.view(-1, c, positions)).mean((0, 2))
    return mean.float(), var.float()


def _kernel_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """PyTorch's two-pass kernel. On a CPU its results have the precision of the buffers it is given."""
    running_mean = running_var = None
    if x.dtype != stats_dtype(x):
        running_mean, running_var = torch.zeros(2, x.shape[1], dtype=stats_dtype(x))
    return torch.batch_norm_update_stats(x, running_mean, running_var, 0.0)


def _moments_of_squares(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Of contiguous maps: Σx and Σx² of each row, and var = Σx²/count − mean²."""
    example_mean, example_square = _example_squares(x)
    mean64 = example_mean.mean(0, dtype=torch.float64)
    var64 = (example_square.mean(0, dtype=torch.float64) - mean64 * mean64).clamp_(min=0)
    mean, var = mean64.float(), var64.float()
    imprecise = mean * mean > _SQUARED_OFFSET_LIMIT * (var + eps)
    if imprecise.any():
        channels = imprecise.nonzero().squeeze(1)
        mean[channels], var[channels] = _kernel_moments(x.index_select(1, channels))
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
def _part_length(length: int, most: int = _MAX_PART_LENGTH) -> int:
    """The largest suitable divisor; if there is none, a part is left over, which takes longer."""
    return next((part for part in range(most, most // 8, -1) if length % part == 0), most)
