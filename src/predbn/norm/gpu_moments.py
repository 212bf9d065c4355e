"""Moments of half-precision maps in channels_last, read once: about twice as fast as PyTorch's kernel on large ones.

A GPU's programs each add up Σx and Σx² of a piece of a group's rows (N · H · W of them, C values each) in single
precision; a second kernel adds up the pieces. var = Σx²/rows − mean² loses digits where the mean is large beside the
spread, but values of 11 bits at most have lost more of them already.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["moments"]

_ROWS = 32
_COLUMNS = 64
_PROGRAMS = 2048
_PIECES = 16


@triton.jit
def _sums(x, partial, rows, tiles, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    group, piece = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.zeros([ROWS, COLUMNS], tl.float32)
    second = tl.zeros([ROWS, COLUMNS], tl.float32)
    for tile in range(tiles):
        row = (piece * tiles + tile) * ROWS + tl.arange(0, ROWS)
        place = (group * rows + row).to(tl.int64)[:, None] * channels + channel[None, :]
        inside = (row < rows)[:, None] & (channel < channels)[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        first += value
        second += value * value
    place = (group * tl.num_programs(1) + piece) * 2 * channels + channel
    tl.store(partial + place, tl.sum(first, 0), mask=channel < channels)
    tl.store(partial + place + channels, tl.sum(second, 0), mask=channel < channels)


@triton.jit
def _combined(partial, mean, var, rows, pieces, channels, PIECES: tl.constexpr, COLUMNS: tl.constexpr):
    group = tl.program_id(0)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    known = channel < channels
    first = tl.zeros([PIECES, COLUMNS], tl.float32)
    second = tl.zeros([PIECES, COLUMNS], tl.float32)
    for start in range(0, pieces, PIECES):
        piece = start + tl.arange(0, PIECES)
        place = (group * pieces + piece)[:, None] * 2 * channels + channel[None, :]
        inside = (piece < pieces)[:, None] & known[None, :]
        first += tl.load(partial + place, mask=inside, other=0.0)
        second += tl.load(partial + place + channels, mask=inside, other=0.0)
    m = tl.sum(first, 0) / rows
    place = group * channels + channel
    tl.store(mean + place, m, mask=known)
    tl.store(var + place, tl.maximum(tl.sum(second, 0) / rows - m * m, 0.0), mask=known)


def moments(x: Tensor, group: int | None = None) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel of x, [N, C, H, W] in channels_last: [C], or with a `group` those of
    every so many examples, [N / group, C]."""
    examples, channels = x.shape[:2]
    groups = 1 if group is None else examples // group
    rows, blocks = x.numel() // channels // groups, triton.cdiv(channels, _COLUMNS)
    tiles = triton.cdiv(triton.cdiv(rows, _ROWS), max(1, _PROGRAMS // (groups * blocks)))
    pieces = triton.cdiv(rows, tiles * _ROWS)
    partial = torch.empty((groups, pieces, 2, channels), dtype=torch.float32, device=x.device)
    mean, var = torch.empty((2, groups, channels), dtype=torch.float32, device=x.device)
    _sums[groups, pieces, blocks](x, partial, rows, tiles, channels, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4)
    _combined[groups, blocks](partial, mean, var, rows, pieces, channels, PIECES=_PIECES, COLUMNS=_COLUMNS, num_warps=4)
    return (mean[0], var[0]) if group is None else (mean, var)
