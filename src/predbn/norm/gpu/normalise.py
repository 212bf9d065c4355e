"""Normalise the values of a layer.

The programs are those of `sums.py`: one for each piece of a group and block of channels. They begin with the first
tiles, which *sums* has read last, so that the cache of the GPU still has them. In channels_last, rows of few channels
are folded into longer ones here as well, so that one version of the kernel is for all numbers of channels that divide
256 or are multiples of it.

What follows a layer in a residual network, adding the shortcut and the ReLU, can be done on the way to memory. The
normalised values are rounded first, so that the result is that of separate operations.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .launch import kernel
from .sums import load_if, load_tile, per_channel, tiling_of

_PROGRAMS = 4096
"""They write nothing that has to be added up, so that there may be more than for sums."""


@kernel(aligned=("x", "y", "shortcut", "columns", "positions"))
def _normalise(
    x, y, shortcut, weight, bias, mean, var, streams, rows, tiles, columns, positions, channels, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, LAST: tl.constexpr,
    WHOLE: tl.constexpr, STREAMS: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    part, piece = tl.program_id(0), tl.program_id(1)
    group = part
    if STREAMS:
        group = tl.load(streams + part)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    valid = column < columns
    channel = column % channels
    own_mean = tl.load(mean + group * channels + channel, mask=valid, other=0.0)
    own_var = tl.load(var + group * channels + channel, mask=valid, other=1.0)
    scale = load_if(WEIGHT, weight, channel, valid, 1.0, COLUMNS) * (1 / tl.sqrt(own_var + eps))
    shift = load_if(BIAS, bias, channel, valid, 0.0, COLUMNS)
    middle, scale, shift = per_channel(own_mean, LAST), per_channel(scale, LAST), per_channel(shift, LAST)
    for tile in range(tiles):
        number = tile * tl.num_programs(1) + piece
        value, inside, offset = load_tile(x, part, rows, number, column, columns, positions, ROWS, LAST, WHOLE)
        result = (value - middle) * scale + shift
        if ADD:
            result = result.to(y.dtype.element_ty).to(tl.float32)
            result += tl.load(shortcut + offset, mask=inside, other=0.0).to(tl.float32)
        if RELU:  # not maximum(·, 0), which would make a value that is not a number 0
            result = tl.where(result < 0, 0.0, result)
        tl.store(y + offset, result.to(y.dtype.element_ty), mask=inside)


def normalise(
    x: Tensor,
    statistics: tuple[Tensor, Tensor],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    streams: Tensor | None = None,
    shortcut: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """weight · (x − mean) / √(var + eps) + bias, for dense x [N, C, …] and statistics [groups, C].

    A `shortcut`, which has the dtype and the strides of x, is added to it, and `relu` makes negative results 0.

    With `streams` the groups are streams, and this is the one of each example, [N].
    """
    groups = statistics[0].shape[0]
    tiling = tiling_of(x, groups if streams is None else x.shape[0], _PROGRAMS)
    y = torch.empty_like(x)
    _normalise(
        tiling.grid,
        (x, y, shortcut, weight, bias, *statistics, streams),
        (tiling.rows // tiling.fold, tiling.tiles, tiling.columns, tiling.positions, tiling.channels),
        (eps,),
        (
            tiling.tile_rows, tiling.tile_columns, weight is not None, bias is not None, tiling.is_last,
            tiling.is_whole, streams is not None, shortcut is not None, relu,
        ),
    )  # fmt: skip
    return y
