"""A 1×1 convolution whose kernel also adds up its output, and may normalise its input.

In channels_last a 1×1 convolution is a product of matrices: rows are examples and positions, columns are channels.
While a tile of the product is in registers, after it was rounded to half precision, mean and squares of each channel
are computed in two steps as exactly as from the stored values, which therefore need not be read again:

    m = Σy/n,    q = Σ(y − m)²,    over the n rows of the tile, or over those of each example in it.

A second kernel adds up what the tiles have found (Chan et al. 1979) about p, the mean of the first tile:

    Σd = Σ n·(m − p),    Σd² = Σ q + n·(m − p)²,    d = y − p.

These are the sums of `sums.py`, which all other kernels take. Nothing is added up in an order that may vary.

The input may be normalised on its way into the product, x·scale + shift and ReLU, rounded as if it had been stored: the
normalised map is then neither written nor read.
"""

# mypy: ignore-errors
from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kernels import IS_INTERPRETED
from .conv_operators import convolved_shape
from .launch import kernel

NO_SUMS, BATCH, EXAMPLES = 0, 1, 2
"""Whether sums are wanted, and of what."""
_COLUMNS, _TILES = 64, 32
"""Channels, and tiles at a time, of a program that adds up what tiles have found."""
_BATCH_TILES = 64
"""How many tiles are one piece of the batch."""
_ROWS = 64
"""Rows of a program that only normalises."""
_WIDE = tl.constexpr(IS_INTERPRETED)
"""The interpreter cannot multiply matrices of bfloat16."""


class Config(NamedTuple):
    """The tile of the output, how much of the input is loaded at a time, and how Triton compiles it."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


class Prologue(NamedTuple):
    """x·scale + shift for each channel of the input, [K] in single precision, and ReLU if wanted."""

    scale: Tensor
    shift: Tensor
    relu: bool


@triton.jit
def _normalised(value, scale, shift, RELU: tl.constexpr):
    result = value.to(tl.float32) * scale[None, :] + shift[None, :]
    if RELU:  # not maximum(·, 0), which would make 0 of what is not a number
        result = tl.where(result < 0, 0.0, result)
    return result.to(value.dtype)


@kernel(aligned=("x", "weight", "y", "depth", "channels"))
def _conv(
    x, weight, y, partial, is_bad, scale, shift, rows, depth, channels, positions, width, in_width, in_positions,
    group_rows, slots, examples,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, STRIDE: tl.constexpr, SUMS: tl.constexpr,
    NORMALISE: tl.constexpr, RELU: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(channels, COLUMNS)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    row = tile * ROWS + tl.arange(0, ROWS)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    # Rows and columns beyond the last one are computed from the last one, and never stored.
    in_row = tl.minimum(row, rows - 1)
    if STRIDE != 1:
        example = in_row // positions
        position = in_row - example * positions
        in_row = example * in_positions + (position // width) * STRIDE * in_width + position % width * STRIDE
    in_column = tl.minimum(column, channels - 1)
    a_place = x + in_row.to(tl.int64)[:, None] * depth + k[None, :]
    b_place = weight + in_column[None, :] * depth + k[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, depth, DEPTH):
        if WHOLE:
            a = tl.load(a_place + start)
            b = tl.load(b_place + start)
            if NORMALISE:
                s = tl.load(scale + start + k)
                t = tl.load(shift + start + k)
                a = _normalised(a, s, t, RELU)
        else:
            inside = start + k < depth
            a = tl.load(a_place + start, mask=inside[None, :], other=0.0)
            b = tl.load(b_place + start, mask=inside[:, None], other=0.0)
            if NORMALISE:
                s = tl.load(scale + start + k, mask=inside, other=0.0)
                t = tl.load(shift + start + k, mask=inside, other=0.0)
                a = _normalised(a, s, t, RELU)
        total = tl.dot(a.to(tl.float32), b.to(tl.float32), total) if _WIDE else tl.dot(a, b, total)
    value = total.to(y.dtype.element_ty)
    valid = column < channels
    inside = (row < rows)[:, None] & valid[None, :]
    tl.store(y + row.to(tl.int64)[:, None] * channels + column[None, :], value, mask=inside)
    if SUMS:
        value = value.to(tl.float32)
        number = tl.where(row < rows, row // group_rows, -1)
        first = tile * ROWS // group_rows
        last = (tl.minimum(tile * ROWS + ROWS, rows) - 1) // group_rows
        for group in range(first, last + 1):
            own = number == group
            middle = tl.sum(tl.where(own[:, None], value, 0.0), 0) / tl.sum(own.to(tl.float32), 0)
            away = tl.where(own[:, None], value - middle[None, :], 0.0)
            place = partial + (tile * slots + group - first).to(tl.int64) * 2 * channels + column
            tl.store(place, middle, mask=valid)
            tl.store(place + channels, tl.sum(away * away, 0), mask=valid)
        if tl.program_id(0) == 0:  # for the next kernel
            for start in range(0, examples, 128):
                index = start + tl.arange(0, 128)
                tl.store(is_bad + index, tl.zeros([128], tl.int32), mask=index < examples)


@kernel()
def _combine(
    partial, sums, is_bad, rows, group_rows, channels, tiles, slots,
    ROWS: tl.constexpr, TILES: tl.constexpr, COLUMNS: tl.constexpr, FIND_BAD: tl.constexpr,
):  # fmt: skip
    """What `tiles` tiles of a group have found; a group is the batch or an example."""
    group, piece = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    begin = group * group_rows
    end = tl.minimum(begin + group_rows, rows)
    first, last = begin // ROWS, (end - 1) // ROWS
    slot = group - first * ROWS // group_rows
    pilot = tl.load(partial + (first * slots + slot).to(tl.int64) * 2 * channels + channel, mask=valid, other=0.0)
    total = tl.zeros([TILES, COLUMNS], tl.float32)
    squares = tl.zeros([TILES, COLUMNS], tl.float32)
    for start in range(0, tiles, TILES):
        offset = start + tl.arange(0, TILES)
        tile = first + piece * tiles + offset
        is_own = (tile <= last) & (offset < tiles)
        count = tl.minimum(end, (tile + 1) * ROWS) - tl.maximum(begin, tile * ROWS)
        own_slot = tile * slots + group - tile * ROWS // group_rows
        own_place = partial + own_slot.to(tl.int64)[:, None] * 2 * channels + channel[None, :]
        inside = is_own[:, None] & valid[None, :]
        middle = tl.load(own_place, mask=inside, other=0.0)
        own_squares = tl.load(own_place + channels, mask=inside, other=0.0)
        weight = count.to(tl.float32)[:, None]
        away = middle - pilot[None, :]
        total += tl.where(inside, weight * away, 0.0)
        squares += tl.where(inside, own_squares + weight * away * away, 0.0)
    place = sums + (group * tl.num_programs(1) + piece).to(tl.int64) * 3 * channels + channel
    square = tl.sum(squares, 0)
    tl.store(place, tl.sum(total, 0), mask=valid)
    tl.store(place + channels, square, mask=valid)
    tl.store(place + 2 * channels, pilot, mask=valid)
    if FIND_BAD:
        is_finite = tl.sum(tl.where(valid, square, 0.0), 0) < float("inf")
        tl.atomic_max(is_bad + group, 1, mask=is_finite == 0)


@kernel(aligned=("x", "y", "channels"))
def _apply(x, y, scale, shift, rows, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr, RELU: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    place = row.to(tl.int64)[:, None] * channels + channel[None, :]
    inside = (row < rows)[:, None] & valid[None, :]
    s = tl.load(scale + channel, mask=valid, other=0.0)
    t = tl.load(shift + channel, mask=valid, other=0.0)
    tl.store(y + place, _normalised(tl.load(x + place, mask=inside, other=0.0), s, t, RELU), mask=inside)


def apply_prologue(x: Tensor, prologue: Prologue) -> Tensor:
    """The normalised input, for x in channels_last."""
    y = torch.empty_like(x)
    channels = x.shape[1]
    rows = x.numel() // channels
    grid = triton.cdiv(rows, _ROWS), triton.cdiv(channels, _COLUMNS), 1
    _apply(grid, (x, y, *prologue[:2]), (rows, channels), constants=(_ROWS, _COLUMNS, prologue.relu))
    return y


def slots_of(tile_rows: int, group_rows: int) -> int:
    """How many groups may have rows in one tile, if there are many groups."""
    return (group_rows - math.gcd(tile_rows, group_rows) + tile_rows - 1) // group_rows + 1


def conv_with_sums(
    x: Tensor, weight: Tensor, stride: int, prologue: Prologue | None, wanted: int, config: Config
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The convolution of x, [N, K, H, W] in channels_last, with weight [C, K, 1, 1], its sums and the bad examples.

    The sums are [1, pieces, 3, C] for `BATCH` and [N, 1, 3, C] for `EXAMPLES`, which also tells which examples are not
    finite, [N].
    """
    shape = convolved_shape(x.shape, weight.shape, (stride, stride))
    examples, channels, height, width = shape
    positions, depth = height * width, x.shape[1]
    rows = examples * positions
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    tiles = triton.cdiv(rows, config.rows)
    of_examples = wanted == EXAMPLES
    groups, group_rows = (examples, positions) if of_examples else (1, rows)
    slots = slots_of(config.rows, group_rows)
    partial = is_bad = None
    if wanted != NO_SUMS:
        partial = torch.empty((tiles, slots, 2, channels), dtype=torch.float32, device=x.device)
    if of_examples:
        is_bad = torch.empty(examples, dtype=torch.int32, device=x.device)
    scale, shift, relu = (None, None, False) if prologue is None else prologue
    _conv(
        (tiles * triton.cdiv(channels, config.columns), 1, 1),
        (x, weight, y, partial, is_bad, scale, shift),
        (
            rows, depth, channels, positions, width, x.shape[3], x.shape[2] * x.shape[3], group_rows, slots,
            examples if of_examples else 0,
        ),
        constants=(
            config.rows, config.columns, config.depth, stride, wanted != NO_SUMS, prologue is not None, relu,
            depth % config.depth == 0,
        ),
        warps=config.warps,
        stages=config.stages,
    )  # fmt: skip
    if partial is None:
        return y, None, None
    own_tiles = (positions - 1) // config.rows + 2 if of_examples else min(_BATCH_TILES, tiles)
    pieces = 1 if of_examples else triton.cdiv(tiles, own_tiles)
    sums = torch.empty((groups, pieces, 3, channels), dtype=torch.float32, device=x.device)
    _combine(
        (groups, pieces, triton.cdiv(channels, _COLUMNS)),
        (partial, sums, is_bad),
        (rows, group_rows, channels, own_tiles, slots),
        constants=(config.rows, min(_TILES, triton.next_power_of_2(own_tiles)), _COLUMNS, of_examples),
    )
    return y, sums, is_bad
