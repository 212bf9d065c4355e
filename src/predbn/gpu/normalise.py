"""Normalise the values of a layer.

The programs are those of `sums.py`: one for each piece of a group and block of channels. They begin with the first
tiles, which *sums* has read last, so that the cache of the GPU still has them. In channels_last, rows of few channels
are folded into longer ones here as well, so that one version of the kernel is for all numbers of channels that divide
256 or are multiples of it.
"""

# mypy: ignore-errors
from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch, kernel
from .sums import load_tile, per_channel, tiling_of

_PROGRAMS = 4096
"""They write nothing that has to be added up, so that there may be more than for sums."""


@triton.jit
def _load_if(GIVEN: tl.constexpr, ptr, channel, valid, OTHER: tl.constexpr, COLUMNS: tl.constexpr):
    """A number of each channel, or OTHER if none are given."""
    values = tl.full([COLUMNS], OTHER, tl.float32)
    if GIVEN:
        values = tl.load(ptr + channel, mask=valid, other=OTHER).to(tl.float32)
    return values


@kernel(aligned=("x_ptr", "y_ptr", "columns", "positions"))
def _normalise(
    x_ptr, y_ptr, weight_ptr, bias_ptr, mean_ptr, var_ptr, segments_ptr, rows, tiles, columns, positions, channels, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, LAST: tl.constexpr,
    WHOLE: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    part, piece = tl.program_id(0), tl.program_id(1)
    group = part
    if SEGMENTS:
        group = tl.load(segments_ptr + part)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    valid = column < columns
    channel = column % channels
    mean = tl.load(mean_ptr + group * channels + channel, mask=valid, other=0.0)
    var = tl.load(var_ptr + group * channels + channel, mask=valid, other=1.0)
    scale = _load_if(WEIGHT, weight_ptr, channel, valid, 1.0, COLUMNS) * (1 / tl.sqrt(var + eps))
    shift = _load_if(BIAS, bias_ptr, channel, valid, 0.0, COLUMNS)
    middle, scale, shift = per_channel(mean, LAST), per_channel(scale, LAST), per_channel(shift, LAST)
    for tile in range(tiles):
        number = tile * tl.num_programs(1) + piece
        value, inside, offset = load_tile(x_ptr, part, rows, number, column, columns, positions, ROWS, LAST, WHOLE)
        result = (value - middle) * scale + shift
        tl.store(y_ptr + offset, result.to(y_ptr.dtype.element_ty), mask=inside)


def normalise(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    segments: Tensor | None = None,
) -> Tensor:
    """weight · (x − mean) / √(var + eps) + bias, for dense x [N, C, …].

    Statistics are [C], [G, C] for G groups of N / G consecutive rows each, or those of the segments of all rows:
    `segments` is then the segment of each row, [N], int32.
    """
    parts = 1 if mean.dim() == 1 else len(mean) if segments is None else len(x)
    y = torch.empty_like(x)
    launch = _normalise_of(x.shape, x.stride(), parts, weight is not None, bias is not None, segments is not None, eps)
    launch(x, y, weight, bias, mean, var, segments)
    return y


@lru_cache(maxsize=4096)
def _normalise_of(
    shape: torch.Size, stride: tuple[int, ...], parts: int, weight: bool, bias: bool, segments: bool, eps: float
) -> Launch:
    tiling = tiling_of(shape, stride, parts, _PROGRAMS)
    return _normalise.bind(
        tiling.grid,
        (tiling.rows // tiling.fold, tiling.tiles, tiling.columns, tiling.positions, tiling.channels),
        (eps,),
        (tiling.tile_rows, tiling.tile_columns, weight, bias, tiling.is_last, tiling.is_whole, segments),
    )
