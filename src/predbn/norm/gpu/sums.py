"""Σ and Σ² of every channel in one pass over the values.

The values of a layer in channels_last are rows, one for each example and position, of C channels. They are cut into
groups (all rows, those of a few examples, or those of one), and each group into pieces. One program adds up one piece
in single precision:

    Σd and Σd²,    d = x − p.

The pilot p of a channel is the mean of the group's first rows: without it, digits would be lost if the mean is large
compared to the spread. With the sums over all pieces, mean = p + Σd/rows and var = Σd²/rows − (Σd/rows)².
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 32, 64
_PROGRAMS = 2048
_PIECES = 16


@triton.jit
def load_tile(x, group, rows, row, channel, channels):
    """The values of rows of a group, 0 outside, and which of them are inside."""
    offset = (group * rows + row).to(tl.int64)[:, None] * channels + channel[None, :]
    inside = (row < rows)[:, None] & (channel < channels)[None, :]
    return tl.load(x + offset, mask=inside, other=0.0).to(tl.float32), inside, offset


@triton.jit
def _sums(
    x, sums, is_bad, rows, tiles, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FIND_BAD: tl.constexpr
):
    group, piece = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    first, _, _ = load_tile(x, group, rows, tl.arange(0, ROWS), channel, channels)
    pilot = tl.sum(first, 0) / tl.minimum(rows, ROWS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    squares = tl.zeros([ROWS, COLUMNS], tl.float32)
    for tile in range(tiles):
        row = (piece * tiles + tile) * ROWS + tl.arange(0, ROWS)
        value, inside, _ = load_tile(x, group, rows, row, channel, channels)
        difference = tl.where(inside, value - pilot[None, :], 0.0)
        total += difference
        squares += difference * difference
    place = sums + (group * tl.num_programs(1) + piece) * 3 * channels + channel
    square = tl.sum(squares, 0)
    tl.store(place, tl.sum(total, 0), mask=valid)
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


@triton.jit
def _moments(sums, mean, var, rows, pieces, channels, PIECES: tl.constexpr, COLUMNS: tl.constexpr):
    group = tl.program_id(0)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    m, v = moments_of_sums(sums, group, pieces, rows, channel, channels, PIECES, COLUMNS)
    tl.store(mean + group * channels + channel, m, mask=channel < channels)
    tl.store(var + group * channels + channel, v, mask=channel < channels)


def cut(rows: int, groups: int, blocks: int) -> tuple[int, int]:
    """How many tiles of rows a piece has, and how many pieces a group, so that there are programs enough for a GPU."""
    tiles = triton.cdiv(triton.cdiv(rows, ROWS), max(1, _PROGRAMS // (groups * blocks)))
    return tiles, triton.cdiv(rows, tiles * ROWS)


def sums(x: Tensor, groups: int, is_bad: Tensor | None = None) -> Tensor:
    """Σd, Σd² and p of every piece of `groups` groups of equally many examples, [groups, pieces, 3, C].

    x is [N, C, …] in channels_last. In `is_bad`, zeros [groups] of type int32, groups that are not finite become 1.
    """
    channels = x.shape[1]
    rows, blocks = x.numel() // channels // groups, triton.cdiv(channels, COLUMNS)
    tiles, pieces = cut(rows, groups, blocks)
    found = torch.empty((groups, pieces, 3, channels), dtype=torch.float32, device=x.device)
    _sums[groups, pieces, blocks](
        x, found, found if is_bad is None else is_bad, rows, tiles, channels,
        ROWS=ROWS, COLUMNS=COLUMNS, FIND_BAD=is_bad is not None, num_warps=4,
    )  # fmt: skip
    return found


def moments(x: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel, [groups, C] each."""
    channels = x.shape[1]
    found = sums(x, groups)
    mean, var = torch.empty((2, groups, channels), dtype=torch.float32, device=x.device)
    rows, pieces = x.numel() // channels // groups, found.shape[1]
    _moments[groups, triton.cdiv(channels, COLUMNS)](
        found, mean, var, rows, pieces, channels, PIECES=_PIECES, COLUMNS=COLUMNS, num_warps=4
    )
    return mean, var
