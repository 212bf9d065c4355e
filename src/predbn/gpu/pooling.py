"""From the sums of each example to the moments of the batch or of its segments, also with bounded influence.

The equations are those of `pooled` and `robust_moments` of `predbn.norm`. One program has a few channels of one
segment. Examples that are not finite are left out.
"""

# mypy: ignore-errors
from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from predbn.norm import robust

from .launch import Launch, ceil_div, kernel, power_of_2
from .quantiles import MAX_SORTED, quantiles
from .sums import Tiling, sums, tiling_of

_MIN_TILE, _MAX_TILE = 256, 1024
"""Values of examples and channels that a program has; one warp can hold the largest number, so that a search over the
examples stays within the warp."""
_COLUMNS, _MAX_COLUMNS, _BLOCKS = 4, 32, 512
"""Channels of a program that has many examples, and at most; how many programs there are at most, if that needs no more
channels."""
_FEW_AT_A_TIME, _MANY_AT_A_TIME = 8, 64
"""Examples that are read at a time where they are not sorted: the first number if no segment has more."""
_SIZES = 4, 8, 32
"""Numbers of examples of a segment that kernels are compiled for, besides larger powers of two."""


@triton.jit
def _example_moments(
    sums_ptr, examples, pieces, rows, channel, channels, COLUMNS: tl.constexpr, EXAMPLES: tl.constexpr
):
    """Mean and variance of each example of a segment, [columns, examples]; `examples` are their rows in the batch.

    Pieces are not read one after the other, which would take long: with few examples and channels several lie beside
    each other in a tile, and several tiles are asked for before the first one is waited for.
    """
    BESIDE: tl.constexpr = 1 if EXAMPLES * COLUMNS >= 128 else 128 // (EXAMPLES * COLUMNS)
    TILES: tl.constexpr = 1 if EXAMPLES * COLUMNS >= 1024 else min(8, 1024 // (EXAMPLES * COLUMNS))
    total = tl.zeros([COLUMNS, EXAMPLES, BESIDE], tl.float32)
    squares = tl.zeros([COLUMNS, EXAMPLES, BESIDE], tl.float32)
    inside = (examples >= 0)[None, :] & (channel < channels)[:, None]
    ptr = sums_ptr + (tl.maximum(examples, 0) * pieces * 3).to(tl.int64)[None, :] * channels + channel[:, None]
    for first in range(0, pieces, TILES * BESIDE):
        for tile in tl.static_range(TILES):
            piece = first + tile * BESIDE + tl.arange(0, BESIDE)
            is_piece = inside[:, :, None] & (piece < pieces)[None, None, :]
            piece_ptr = ptr[:, :, None] + (piece * 3 * channels)[None, None, :]
            total += tl.load(piece_ptr, mask=is_piece, other=0.0)
            squares += tl.load(piece_ptr + channels, mask=is_piece, other=0.0)
    pilot = tl.load(ptr + 2 * channels, mask=inside, other=0.0)
    offset = tl.sum(total, 2) / rows
    return pilot + offset, tl.maximum(tl.sum(squares, 2) / rows - offset * offset, 0.0)


@triton.jit
def _examples(order_ptr, is_bad_ptr, begin, index, n, ORDERED: tl.constexpr):
    """The rows of a segment's examples in the batch, −1 for those that it does not have; and which ones are used."""
    if ORDERED:
        example = tl.load(order_ptr + begin + index, mask=index < n, other=-1)
    else:
        example = tl.where(index < n, begin + index, -1)
    is_used = (index < n) & (tl.load(is_bad_ptr + tl.maximum(example, 0), mask=index < n, other=1) == 0)
    return example, is_used


@kernel()
def _pool(
    sums_ptr, is_bad_ptr, order_ptr, starts_ptr, clean_var_ptr, scatter_ptr, clipping_ptr, out_ptr, sizes_ptr,
    segments, n, rows, pieces, channels, eps, limit, wider, tiny, gaussian, decay, low_quantile,
    centre_quantile, high_quantile,
    COLUMNS: tl.constexpr, EXAMPLES: tl.constexpr, BOUNDED: tl.constexpr, CORRECTED: tl.constexpr,
    ORDERED: tl.constexpr, MAX_SORTED: tl.constexpr,
):  # fmt: skip
    segment = tl.program_id(0)
    begin = segment * n
    if ORDERED:
        begin = tl.load(starts_ptr + segment)
        n = tl.load(starts_ptr + segment + 1) - begin
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    ptr = out_ptr + segment * channels + channel
    if BOUNDED:
        clean_var = tl.load(clean_var_ptr + channel, mask=valid, other=1.0)
        scatter = tl.load(scatter_ptr + channel, mask=valid, other=1.0)
        if CORRECTED:
            clip_offset = tl.load(clipping_ptr + channel, mask=valid, other=0.0)
            clip_within = tl.load(clipping_ptr + channels + channel, mask=valid, other=1.0)
            clip_between = tl.load(clipping_ptr + 2 * channels + channel, mask=valid, other=1.0)
        example, is_used = _examples(order_ptr, is_bad_ptr, begin, tl.arange(0, EXAMPLES), n, ORDERED)
        count = tl.sum(is_used.to(tl.float32), 0)
        means, variances = _example_moments(sums_ptr, example, pieces, rows, channel, channels, COLUMNS, EXAMPLES)
        means = tl.where(is_used[None, :], means, float("inf"))
        variances = tl.where(is_used[None, :], variances + (eps + tiny), float("inf"))
        last = tl.maximum(count - 1, 0.0)
        low, centre, high, low_var, centre_var, high_var = quantiles(
            means, variances, low_quantile, centre_quantile, high_quantile, last, COLUMNS, EXAMPLES, MAX_SORTED
        )
        spread = tl.maximum((high - low) / gaussian, tl.sqrt(scatter * (clean_var + eps)))
        log_spread = tl.maximum(tl.log(high_var / low_var) / gaussian, tl.sqrt(2 * scatter))
        bound = limit * (1 + wider / count)
        step = bound * spread
        factor = tl.exp(bound * log_spread)
        means = tl.minimum(tl.maximum(means, (centre - step)[:, None]), (centre + step)[:, None])
        variances = tl.minimum(tl.maximum(variances, (centre_var / factor)[:, None]), (centre_var * factor)[:, None])
        weight = is_used.to(tl.float32) / count
        mean = tl.sum(weight[None, :] * means, 1)
        deviation = means - mean[:, None]
        between = tl.sum(weight[None, :] * deviation * deviation, 1)
        within = tl.maximum(tl.sum(weight[None, :] * variances, 1) - (eps + tiny), 0.0)
        tl.store(ptr + 2 * segments * channels, between, mask=valid)
        if CORRECTED:
            share = tl.exp(-decay / tl.maximum(count, 1.0))
            mean += share * clip_offset * spread
            within *= tl.exp(share * tl.log(clip_within))
            between *= tl.exp(share * tl.log(clip_between))
        var = within + between
    else:
        mean = tl.zeros([COLUMNS], tl.float32)
        var = tl.zeros([COLUMNS], tl.float32)
        count = tl.sum(tl.zeros([EXAMPLES], tl.float32), 0)
        for first in range(0, n, EXAMPLES):
            example, is_used = _examples(order_ptr, is_bad_ptr, begin, first + tl.arange(0, EXAMPLES), n, ORDERED)
            means, variances = _example_moments(sums_ptr, example, pieces, rows, channel, channels, COLUMNS, EXAMPLES)
            mean += tl.sum(tl.where(is_used[None, :], means, 0.0), 1)
            count += tl.sum(is_used.to(tl.float32), 0)
        mean = mean / count
        for first in range(0, n, EXAMPLES):
            example, is_used = _examples(order_ptr, is_bad_ptr, begin, first + tl.arange(0, EXAMPLES), n, ORDERED)
            means, variances = _example_moments(sums_ptr, example, pieces, rows, channel, channels, COLUMNS, EXAMPLES)
            deviation = means - mean[:, None]
            var += tl.sum(tl.where(is_used[None, :], variances + deviation * deviation, 0.0), 1)
        var = var / count
    tl.store(ptr, mean, mask=valid)
    tl.store(ptr + segments * channels, var, mask=valid)
    tl.store(sizes_ptr + segment, count)


class BoundTensors(NamedTuple):
    """The tensors of `Bounds`, contiguous and in single precision."""

    clean_var: Tensor
    scatter: Tensor
    clipping: Tensor | None


def pooled_moments(
    x: Tensor,
    segments: int,
    order: tuple[Tensor, Tensor] | None,
    largest: int,
    eps: float,
    limit: float = 0.0,
    bounds: BoundTensors | None = None,
) -> tuple[Tensor, Tensor]:
    """The moments of every segment, [3, S, C], and how many of its examples are finite, [S, 1].

    They are mean, variance and, with bounds only, the part of the variance between examples. x is dense, [N, C, …].
    Segments are those of `order` and `starts` (`RowOrder`), or of N / S consecutive examples each; the largest one has
    `largest` examples at most.
    """
    tiling = tiling_of(x.shape, x.stride(), len(x))
    is_bad = torch.zeros(len(x), dtype=torch.int32, device=x.device)
    sums_of_examples = sums(x, tiling, is_bad)
    out, sizes = (
        torch.empty(shape, dtype=torch.float32, device=x.device)
        for shape in ((3, segments, tiling.channels), (segments, 1))
    )
    constants = bounds is not None, bounds is not None and bounds.clipping is not None, order is not None
    if bounds is not None:
        examples = next((size for size in _SIZES if largest <= size), power_of_2(largest))
    else:
        examples = _FEW_AT_A_TIME if largest <= _FEW_AT_A_TIME else _MANY_AT_A_TIME
    launch = _pool_of(tiling, segments, examples, eps, limit, constants)
    launch(sums_of_examples, is_bad, *(order or (None, None)), *(bounds or [None] * 3), out, sizes)
    return out, sizes


@lru_cache(maxsize=4096)
def _pool_of(
    tiling: Tiling, segments: int, examples: int, eps: float, limit: float, constants: tuple[bool, ...]
) -> Launch:
    columns = min(_MAX_COLUMNS, max(_MIN_TILE, min(_MAX_TILE, _COLUMNS * examples)) // examples)
    columns = min(columns, power_of_2(ceil_div(tiling.channels * segments, _BLOCKS)))
    return _pool.bind(
        (segments, ceil_div(tiling.channels, columns), 1),
        (segments, tiling.groups // segments, tiling.rows, tiling.pieces, tiling.channels),
        (eps, limit, robust.WIDER_FOR_FEW, robust.TINY, robust.GAUSSIAN, robust.CLIPPING_DECAY, *robust.QUANTILES),
        (columns, examples, *constants, MAX_SORTED),
        warps=1 if constants[0] else 4,
    )
