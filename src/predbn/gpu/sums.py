"""Σ and Σ² of every channel in one pass over the values.

The values of a layer are rows, one for each example and position, of C channels. They are cut into groups (all rows, or
those of one example), and each group into pieces. One program adds up one piece of a few channels in single precision:

    Σd and Σd²,    d = x − p.

The pilot p of a channel is the mean of the group's first rows: without it, digits would be lost if the mean is large
compared to the spread. A piece that fits into one tile is read once, and p is its own mean. With the sums over all
pieces, mean = p + Σd/rows and var = Σd²/rows − (Σd/rows)².

The tiles of a group are dealt out to its pieces in turn, and read from the last to the first: what wrote the values, a
convolution, leaves the last ones in the cache of the GPU. `normalise.py` then begins with the first.

Tiles of values are [rows, channels] if the channels lie next to each other in memory (channels_last), and otherwise
[channels, rows]: neighbouring threads then read neighbouring values. With few channels a tile has as many columns as
there are channels, and more rows. If the size of a map is a power of two, a tile that is not in channels_last has rows
of one example only: its address is then one number, and its values are read in steps of 16 bytes.
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

from .launch import Launch, ceil_div, kernel, power_of_2

_COLUMNS, _ROWS, _MAX_ROWS = 64, 32, 64
"""Channels and rows of a tile in channels_last; rows if the whole group fits into one tile."""
_WIDE_COLUMNS, _WIDE_ROWS, _WIDE_WARPS = 256, 4, 1
"""The same for a tile as wide as a warp reads at a time. Each thread then has channels of its own, and nothing is
exchanged between threads. If the number of channels divides 256, several rows are folded into one."""
_NORMALISED_ROWS = 16
"""Rows of such a tile for normalising, if it has no empty columns."""
_TILE, _LARGE_TILE = 2048, 4096
"""Values of a tile if it is not in channels_last; if it is, and there are few channels."""
_MIN_WHOLE_MAP = 64
"""Values of a map that is divided into tiles of its own, if their number is a power of two."""
_PROGRAMS = 1024
"""Enough programs to fill a GPU, and not too many pieces to add up (measured on an H200)."""
_WIDE_PROGRAMS, _VALUES = (512, 1024, 2048), 6144
"""The same for programs of one warp: the most of these for which each has at least so many values, or the fewest."""
_PIECES, _BLOCK, _BLOCK_WARPS = (64, 256, 1024), 8, 8
"""Pieces that are added up at a time, few, many or very many; channels of a program that does so, and its warps."""


@triton.jit
def load_tile(
    x_ptr, group, rows, tile, channel, channels, positions, ROWS: tl.constexpr, LAST: tl.constexpr, WHOLE: tl.constexpr
):
    """The values of a tile of a group, 0 outside; which of them are inside; and their offsets.

    WHOLE: the rows of a tile are of one example, and the tile is inside as a whole or not at all.
    """
    channel_inside = channel < channels
    row = tile * ROWS + tl.arange(0, ROWS)
    if LAST:
        inside = (row < rows)[:, None] & channel_inside[None, :]
        offset = (group * rows + row).to(tl.int64)[:, None] * channels + channel[None, :]
    elif WHOLE:
        tiles_of_example = positions // ROWS
        example = (group * (rows // positions) + tile // tiles_of_example).to(tl.int64)
        first = (tile % tiles_of_example) * ROWS
        inside = channel_inside[:, None] & (tl.full([1, ROWS], tile * ROWS, tl.int32) < rows)
        offset = (example * channels + channel)[:, None] * positions + (first + tl.arange(0, ROWS))[None, :]
    else:
        inside = channel_inside[:, None] & (row < rows)[None, :]
        number = (group * rows + row).to(tl.int64)
        example = number // positions
        offset = (example * channels * positions + number - example * positions)[None, :] + channel[:, None] * positions
    return tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32), inside, offset


@triton.jit
def per_channel(values, LAST: tl.constexpr):
    """One value for each channel, to be combined with a tile."""
    return values[None, :] if LAST else values[:, None]


@triton.jit
def _fold(values, FOLD: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum over the rows that are folded into one, for each channel."""
    return values if FOLD == 1 else tl.sum(tl.reshape(values, [FOLD, COLUMNS // FOLD]), 0)


@triton.jit
def _unfold(values, FOLD: tl.constexpr, COLUMNS: tl.constexpr):
    """A value of each channel, for all rows that are folded into one."""
    if FOLD == 1:
        return values
    return tl.reshape(tl.broadcast_to(values[None, :], [FOLD, COLUMNS // FOLD]), [COLUMNS])


@kernel(aligned=("x_ptr", "channels", "positions"))
def _sums(
    x_ptr, sums_ptr, is_bad_ptr, rows, tiles, channels, positions,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LAST: tl.constexpr, WHOLE: tl.constexpr, ONE_TILE: tl.constexpr,
    WIDE: tl.constexpr, FOLD: tl.constexpr, FIND_BAD: tl.constexpr,
):  # fmt: skip
    ROW_AXIS: tl.constexpr = 0 if LAST else 1
    group, piece = tl.program_id(0), tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    columns = channels * FOLD
    value, inside, _ = load_tile(x_ptr, group, rows, 0, column, columns, positions, ROWS, LAST, WHOLE)
    pilot = _fold(tl.sum(value, ROW_AXIS), FOLD, COLUMNS) / (tl.minimum(rows, ROWS) * FOLD)
    middle = per_channel(_unfold(pilot, FOLD, COLUMNS), LAST)
    if WIDE:
        total = tl.zeros([COLUMNS], tl.float32)
        square = tl.zeros([COLUMNS], tl.float32)
        for tile in range(tiles):
            number = (tiles - 1 - tile) * tl.num_programs(1) + piece
            value, inside, _ = load_tile(x_ptr, group, rows, number, column, columns, positions, ROWS, LAST, WHOLE)
            difference = tl.where(inside, value - middle, 0.0)
            total += tl.sum(difference, ROW_AXIS)
            square += tl.sum(difference * difference, ROW_AXIS)
    else:
        totals = tl.zeros_like(value)
        squares = tl.zeros_like(value)
        if ONE_TILE:
            difference = tl.where(inside, value - middle, 0.0)
            totals += difference
            squares += difference * difference
        else:
            for tile in range(tiles):
                number = (tiles - 1 - tile) * tl.num_programs(1) + piece
                value, inside, _ = load_tile(x_ptr, group, rows, number, column, columns, positions, ROWS, LAST, WHOLE)
                difference = tl.where(inside, value - middle, 0.0)
                totals += difference
                squares += difference * difference
        total = tl.sum(totals, ROW_AXIS)
        square = tl.sum(squares, ROW_AXIS)
    channel = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS // FOLD)
    valid = channel < channels
    ptr = sums_ptr + (group * tl.num_programs(1) + piece) * 3 * channels + channel
    square = _fold(square, FOLD, COLUMNS)
    tl.store(ptr, _fold(total, FOLD, COLUMNS), mask=valid)
    tl.store(ptr + channels, square, mask=valid)
    tl.store(ptr + 2 * channels, pilot, mask=valid)
    if FIND_BAD:
        is_finite = tl.sum(square, 0) < float("inf")
        tl.atomic_max(is_bad_ptr + group, 1, mask=is_finite == 0)


@kernel()
def _moments(sums_ptr, out_ptr, rows, pieces, channels, PIECES: tl.constexpr, COLUMNS: tl.constexpr):
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    pilot = tl.load(sums_ptr + 2 * channels + channel, mask=valid, other=0.0)
    total = tl.zeros([PIECES, COLUMNS], tl.float32)
    squares = tl.zeros([PIECES, COLUMNS], tl.float32)
    for start in range(0, pieces, PIECES):
        piece = start + tl.arange(0, PIECES)
        ptr = sums_ptr + piece[:, None] * 3 * channels + channel[None, :]
        inside = (piece < pieces)[:, None] & valid[None, :]
        total += tl.load(ptr, mask=inside, other=0.0)
        squares += tl.load(ptr + channels, mask=inside, other=0.0)
    offset = tl.sum(total, 0) / rows
    var = tl.sum(squares, 0) / rows - offset * offset
    tl.store(out_ptr + channel, pilot + offset, mask=valid)
    # Not maximum(·, 0), which would turn a NaN into 0.
    tl.store(out_ptr + channels + channel, tl.where(var < 0, 0.0, var), mask=valid)


class Tiling(NamedTuple):
    """How the values of a layer are distributed over programs."""

    is_last: bool
    is_whole: bool
    groups: int
    rows: int
    channels: int
    positions: int
    tile_rows: int
    tile_columns: int
    tiles: int
    pieces: int
    blocks: int
    is_wide: bool = False
    fold: int = 1

    @property
    def columns(self) -> int:
        """Values of a row, in which several rows may be folded."""
        return self.channels * self.fold

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.groups, self.pieces, self.blocks


@lru_cache(maxsize=4096)
def tiling_of(shape: torch.Size, stride: tuple[int, ...], groups: int, programs: int | None = None) -> Tiling:
    """For dense x [N, C, …] in `groups` groups of equally many examples.

    Without a number of programs it is a tiling for sums.
    """
    examples, channels = shape[:2]
    positions = math.prod(shape[2:])
    rows = examples // groups * positions
    is_last = stride[1] == 1 or positions == 1
    is_whole = not is_last and positions >= _MIN_WHOLE_MAP and power_of_2(positions) == positions
    fold = max(1, _WIDE_COLUMNS // channels) if is_last and rows > _WIDE_ROWS else 0
    is_wide = fold > 0 and (fold == 1 or (fold * channels == _WIDE_COLUMNS and rows % fold == 0))
    if programs is not None and fold * channels % _WIDE_COLUMNS:  # then a tile would have empty columns
        is_wide = False
    if is_wide:
        tile_rows, tile_columns = _WIDE_ROWS if programs is None else _NORMALISED_ROWS, _WIDE_COLUMNS
    elif is_last and channels <= _COLUMNS // 2:
        tile_columns = power_of_2(channels)
        tile_rows = min(_LARGE_TILE // max(tile_columns, 8), power_of_2(rows))
    elif is_last:
        tile_rows, tile_columns = power_of_2(rows) if rows <= _MAX_ROWS else _ROWS, _COLUMNS
    else:
        tile_rows = min(512, positions if is_whole else power_of_2(rows))
        tile_columns = min(_TILE // tile_rows, power_of_2(channels))
    if programs is None:
        programs = _wide_programs(math.prod(shape)) if is_wide else _PROGRAMS
    fold = fold if is_wide else 1
    rows //= fold
    blocks = ceil_div(channels * fold, tile_columns)
    tiles = ceil_div(ceil_div(rows, tile_rows), max(1, programs // (groups * blocks)))
    pieces = ceil_div(rows, tiles * tile_rows)
    return Tiling(
        is_last, is_whole, groups, rows * fold, channels, positions, tile_rows, tile_columns, tiles, pieces, blocks,
        is_wide, fold,
    )  # fmt: skip


def _wide_programs(values: int) -> int:
    return max((count for count in _WIDE_PROGRAMS if count * _VALUES <= values), default=min(_WIDE_PROGRAMS))


@lru_cache(maxsize=4096)
def _sums_of(tiling: Tiling, find_bad: bool) -> Launch:
    is_one_tile = tiling.tiles == 1 and tiling.pieces == 1
    return _sums.bind(
        tiling.grid,
        (tiling.rows // tiling.fold, tiling.tiles, tiling.channels, tiling.positions),
        constants=(
            tiling.tile_rows, tiling.tile_columns, tiling.is_last, tiling.is_whole, is_one_tile, tiling.is_wide,
            tiling.fold, find_bad,
        ),
        warps=_WIDE_WARPS if tiling.is_wide else 4,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _moments_of(tiling: Tiling) -> Launch:
    return _moments.bind(
        (ceil_div(tiling.channels, _BLOCK), 1, 1),
        (tiling.rows, tiling.pieces, tiling.channels),
        constants=(next((count for count in _PIECES if tiling.pieces <= count), _PIECES[-1]), _BLOCK),
        warps=_BLOCK_WARPS,
    )


def sums(x: Tensor, tiling: Tiling, is_bad: Tensor | None = None) -> Tensor:
    """Σd, Σd² and p of every piece of every group, [groups, pieces, 3, C].

    `is_bad`, int32 zeros [groups], becomes 1 for groups that are not finite.
    """
    out = torch.empty((tiling.groups, tiling.pieces, 3, tiling.channels), dtype=torch.float32, device=x.device)
    _sums_of(tiling, is_bad is not None)(x, out, is_bad)
    return out


def moments(x: Tensor) -> Tensor:
    """Mean and biased variance of each channel, [2, C]. x is dense, [N, C, …]."""
    tiling = tiling_of(x.shape, x.stride(), 1)
    out = torch.empty((2, tiling.channels), dtype=torch.float32, device=x.device)
    _moments_of(tiling)(sums(x, tiling), out)
    return out
