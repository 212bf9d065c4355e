"""Σ and Σ² of every channel in one pass over the values.

The values of a layer are rows, one for each example and position, of C channels. They are cut into groups (all rows,
those of a few examples, or those of one), and each group into pieces. One program adds up one piece of a few channels
in single precision:

    Σd and Σd²,    d = x − p.

The pilot p of a channel is the mean of the group's first rows: without it, digits would be lost if the mean is large
compared to the spread. A piece that fits into one tile is read once, and p is its own mean. With the sums over all
pieces, mean = p + Σd/rows and var = Σd²/rows − (Σd/rows)².

Tiles of values are [rows, channels] if the channels lie next to each other in memory (channels_last), and otherwise
[channels, rows]: neighbouring threads then read neighbouring values.
"""

# mypy: ignore-errors
from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import ceil_div, kernel, new_memory, power_of_2

_COLUMNS, _ROWS, _MOST_ROWS = 64, 32, 64
"""Channels and rows of a tile in channels_last; rows if the whole group fits into one tile."""
_TILE = 2048
"""Values of a tile if it is not in channels_last."""
_PROGRAMS = 1024
"""Enough programs to fill a GPU, and not too many pieces to add up (measured on an H200)."""
PIECES, BLOCK = 64, 16
"""Pieces that are added up at a time, and channels of a program that does so."""


@triton.jit
def load_tile(x, group, rows, row, channel, channels, positions, LAST: tl.constexpr):
    """The values of rows of a group, 0 outside; which of them are inside; and their offsets."""
    row_inside, channel_inside = row < rows, channel < channels
    number = (group * rows + row).to(tl.int64)
    if LAST:
        inside = row_inside[:, None] & channel_inside[None, :]
        offset = number[:, None] * channels + channel[None, :]
    else:
        inside = channel_inside[:, None] & row_inside[None, :]
        example = number // positions
        offset = (example * channels * positions + number - example * positions)[None, :] + channel[:, None] * positions
    return tl.load(x + offset, mask=inside, other=0.0).to(tl.float32), inside, offset


@triton.jit
def per_channel(values, LAST: tl.constexpr):
    """One value for each channel, to be combined with a tile."""
    return values[None, :] if LAST else values[:, None]


@kernel(aligned=("x", "channels", "positions"))
def _sums(
    x, sums, is_bad, rows, tiles, channels, positions,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LAST: tl.constexpr, ONE_TILE: tl.constexpr, FIND_BAD: tl.constexpr,
):  # fmt: skip
    ROW_AXIS: tl.constexpr = 0 if LAST else 1
    group, piece = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    value, inside, _ = load_tile(x, group, rows, tl.arange(0, ROWS), channel, channels, positions, LAST)
    pilot = tl.sum(value, ROW_AXIS) / tl.minimum(rows, ROWS)
    total = tl.zeros_like(value)
    squares = tl.zeros_like(value)
    if ONE_TILE:
        difference = tl.where(inside, value - per_channel(pilot, LAST), 0.0)
        total += difference
        squares += difference * difference
    else:
        for tile in range(tiles):
            row = (piece * tiles + tile) * ROWS + tl.arange(0, ROWS)
            value, inside, _ = load_tile(x, group, rows, row, channel, channels, positions, LAST)
            difference = tl.where(inside, value - per_channel(pilot, LAST), 0.0)
            total += difference
            squares += difference * difference
    place = sums + (group * tl.num_programs(1) + piece) * 3 * channels + channel
    square = tl.sum(squares, ROW_AXIS)
    tl.store(place, tl.sum(total, ROW_AXIS), mask=valid)
    tl.store(place + channels, square, mask=valid)
    tl.store(place + 2 * channels, pilot, mask=valid)
    if FIND_BAD:
        is_finite = tl.sum(square, 0) < float("inf")
        tl.atomic_max(is_bad + group, 1, mask=is_finite == 0)


@triton.jit
def moments_of_sums(sums, group, pieces, rows, channel, channels, PIECES: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and variance of the channels of a group."""
    valid = channel < channels
    total = tl.zeros([PIECES, COLUMNS], tl.float32)
    squares = tl.zeros([PIECES, COLUMNS], tl.float32)
    for start in range(0, pieces, PIECES):
        piece = start + tl.arange(0, PIECES)
        place = sums + (group * pieces + piece)[:, None] * 3 * channels + channel[None, :]
        inside = (piece < pieces)[:, None] & valid[None, :]
        total += tl.load(place, mask=inside, other=0.0)
        squares += tl.load(place + channels, mask=inside, other=0.0)
    pilot = tl.load(sums + (group * pieces * 3 + 2) * channels + channel, mask=valid, other=0.0)
    offset = tl.sum(total, 0) / rows
    # Not maximum(·, 0), which would make a variance that is not a number 0.
    var = tl.sum(squares, 0) / rows - offset * offset
    return pilot + offset, tl.where(var < 0, 0.0, var)


@kernel()
def _moments(sums, mean, var, rows, pieces, channels, PIECES: tl.constexpr, COLUMNS: tl.constexpr):
    group = tl.program_id(0)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    m, v = moments_of_sums(sums, group, pieces, rows, channel, channels, PIECES, COLUMNS)
    tl.store(mean + group * channels + channel, m, mask=channel < channels)
    tl.store(var + group * channels + channel, v, mask=channel < channels)


class Tiling(NamedTuple):
    """How the values of a layer are distributed over programs."""

    is_last: bool
    groups: int
    rows: int
    channels: int
    positions: int
    tile_rows: int
    tile_columns: int
    tiles: int
    pieces: int
    blocks: int

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.groups, self.pieces, self.blocks


def tiling_of(x: Tensor, groups: int, programs: int = _PROGRAMS) -> Tiling:
    """About so many programs, for dense x [N, C, …] in `groups` groups of equally many examples."""
    return _tiling(x.shape, x.stride(1) == 1, groups, programs)


@lru_cache(maxsize=4096)
def _tiling(shape: tuple[int, ...], is_last: bool, groups: int, programs: int) -> Tiling:
    examples, channels = shape[:2]
    positions = math.prod(shape[2:])
    rows = examples // groups * positions
    is_last = is_last or positions == 1
    if is_last:
        tile_rows, tile_columns = power_of_2(rows) if rows <= _MOST_ROWS else _ROWS, _COLUMNS
    else:
        tile_rows = min(512, power_of_2(rows))
        tile_columns = min(_TILE // tile_rows, power_of_2(channels))
    blocks = ceil_div(channels, tile_columns)
    tiles = ceil_div(ceil_div(rows, tile_rows), max(1, programs // (groups * blocks)))
    pieces = ceil_div(rows, tiles * tile_rows)
    return Tiling(is_last, groups, rows, channels, positions, tile_rows, tile_columns, tiles, pieces, blocks)


def sums(x: Tensor, tiling: Tiling, is_bad: Tensor | None = None) -> Tensor:
    """Σd, Σd² and p of every piece of every group, [groups, pieces, 3, C].

    In `is_bad`, zeros [groups] of type int32, groups that are not finite become 1.
    """
    found = new_memory((tiling.groups, tiling.pieces, 3, tiling.channels), x.device)
    is_one_tile = tiling.tiles == 1 and tiling.pieces == 1
    _sums(
        tiling.grid,
        (x, found, is_bad),
        (tiling.rows, tiling.tiles, tiling.channels, tiling.positions),
        constants=(tiling.tile_rows, tiling.tile_columns, tiling.is_last, is_one_tile, is_bad is not None),
    )
    return found


def moments_from(found: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Mean and biased variance, [groups, C] each, from the sums of `rows` values for each group and channel."""
    groups, pieces, _, channels = found.shape
    mean = torch.empty((groups, channels), dtype=torch.float32, device=found.device)
    var = torch.empty_like(mean)
    grid = groups, ceil_div(channels, BLOCK), 1
    _moments(grid, (found, mean, var), (rows, pieces, channels), constants=(PIECES, BLOCK))
    return mean, var


def moments(x: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel, [groups, C] each. x is dense, [N, C, …]."""
    tiling = tiling_of(x, groups)
    return moments_from(sums(x, tiling), tiling.rows)
