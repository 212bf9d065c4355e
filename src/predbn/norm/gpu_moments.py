"""Moments of half-precision maps in channels_last in one pass: about twice as fast as PyTorch's kernel on large maps.

The rows of a group (N · H · W of them, C values each) are cut into pieces. One program per piece adds up Σd and Σd² in
single precision, where d = x − p; a second kernel adds up the pieces: mean = p + Σd/rows, var = Σd²/rows − (Σd/rows)².
The pilot p of a channel is the mean of the group's first rows. Without it, digits would be lost if the mean is large
compared to the spread.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 32
_COLUMNS = 64
_PROGRAMS = 2048
_PIECES = 16


@triton.jit
def _load_tile(x, group, rows, row, channel, channels):
    offset = (group * rows + row).to(tl.int64)[:, None] * channels + channel[None, :]
    inside = (row < rows)[:, None] & (channel < channels)[None, :]
    return tl.load(x + offset, mask=inside, other=0.0).to(tl.float32), inside


@triton.jit
def _pilot(x, group, rows, channel, channels, ROWS: tl.constexpr):
    value, _ = _load_tile(x, group, rows, tl.arange(0, ROWS), channel, channels)
    return tl.sum(value, 0) / tl.minimum(rows, ROWS)


@triton.jit
def _partial_sums(x, partial, rows, tiles, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    group, piece = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    pilot = _pilot(x, group, rows, channel, channels, ROWS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    squares = tl.zeros([ROWS, COLUMNS], tl.float32)
    for tile in range(tiles):
        row = (piece * tiles + tile) * ROWS + tl.arange(0, ROWS)
        value, inside = _load_tile(x, group, rows, row, channel, channels)
        difference = tl.where(inside, value - pilot[None, :], 0.0)
        total += difference
        squares += difference * difference
    offset = (group * tl.num_programs(1) + piece) * 2 * channels + channel
    tl.store(partial + offset, tl.sum(total, 0), mask=channel < channels)
    tl.store(partial + offset + channels, tl.sum(squares, 0), mask=channel < channels)


@triton.jit
def _combine_sums(
    x, partial, mean, var, rows, pieces, channels, PIECES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    group = tl.program_id(0)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    total = tl.zeros([PIECES, COLUMNS], tl.float32)
    squares = tl.zeros([PIECES, COLUMNS], tl.float32)
    for start in range(0, pieces, PIECES):
        piece = start + tl.arange(0, PIECES)
        offset = (group * pieces + piece)[:, None] * 2 * channels + channel[None, :]
        inside = (piece < pieces)[:, None] & valid[None, :]
        total += tl.load(partial + offset, mask=inside, other=0.0)
        squares += tl.load(partial + offset + channels, mask=inside, other=0.0)
    m = tl.sum(total, 0) / rows
    offset = group * channels + channel
    tl.store(mean + offset, m + _pilot(x, group, rows, channel, channels, ROWS), mask=valid)
    tl.store(var + offset, tl.maximum(tl.sum(squares, 0) / rows - m * m, 0.0), mask=valid)


def single_pass_moments(x: Tensor, group: int | None = None) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel of x, which is [N, C, H, W] in channels_last.

    The shape is [C], or [N / group, C] with a `group`: one row for every so many examples.
    """
    examples, channels = x.shape[:2]
    groups = 1 if group is None else examples // group
    rows, blocks = x.numel() // channels // groups, triton.cdiv(channels, _COLUMNS)
    tiles = triton.cdiv(triton.cdiv(rows, _ROWS), max(1, _PROGRAMS // (groups * blocks)))
    pieces = triton.cdiv(rows, tiles * _ROWS)
    partial = torch.empty((groups, pieces, 2, channels), dtype=torch.float32, device=x.device)
    mean, var = torch.empty((2, groups, channels), dtype=torch.float32, device=x.device)
    _partial_sums[groups, pieces, blocks](x, partial, rows, tiles, channels, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4)
    _combine_sums[groups, blocks](
        x, partial, mean, var, rows, pieces, channels, PIECES=_PIECES, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4
    )
    return (mean[0], var[0]) if group is None else (mean, var)
