"""3×3 convolution, stride 1, of few channels in channels_last: forward pass and both gradients.

Every program computes a run of pixels and all channels; the nine taps are nine small products of [pixels, inputs] and
[inputs, outputs]. For 16 channels these are so small that reading the values nine times takes longest. A program then
computes squares of 2×2 pixels: each row of four values that touches one is read once, [squares, 4·16], and multiplied
by a filter for two neighbouring pixels, [4·16, 2·16], in which taps outside the window are 0. (So a value that is not
finite reaches one pixel more, in its own image.)

The gradient of the input is the same convolution with the filter rotated by 180°; that of the filter is summed over
pixels in a fixed order, so that the result is the same bit for bit every time.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PIXELS = {16: 256, 32: 256, 64: 128}
_WARPS = {16: 4, 32: 8, 64: 8}
_FILTER_PIXELS = {16: 256, 32: 64, 64: 64}
_FILTER_PROGRAMS = 132
_SQUARES, _SQUARE_PROGRAMS = 64, 660
"""Squares that are computed at a time, and programs, five for each multiprocessor of an H200 (measured there)."""


@triton.jit
def _convolve(
    x, w, y, count, height, width, s_out, s_in, s_row, s_col,
    IN: tl.constexpr, OUT: tl.constexpr, TURNED: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    column = pixel % width
    row = (pixel // width) % height
    inputs = tl.arange(0, IN)
    outputs = tl.arange(0, OUT)
    total = tl.zeros([PIXELS, OUT], tl.float32)
    for tap in tl.static_range(9):
        down = tap // 3 - 1
        right = tap % 3 - 1
        inside = (pixel < count) & (row + down >= 0) & (row + down < height)
        inside = inside & (column + right >= 0) & (column + right < width)
        place = (pixel + down * width + right)[:, None] * IN + inputs[None, :]
        values = tl.load(x + place, mask=inside[:, None], other=0.0)
        k = 8 - tap if TURNED else tap
        at = outputs[None, :] * s_out + inputs[:, None] * s_in + (k // 3) * s_row + (k % 3) * s_col
        total = tl.dot(values, tl.load(w + at).to(values.dtype), total)
    place = pixel[:, None] * OUT + outputs[None, :]
    tl.store(y + place, total.to(y.dtype.element_ty), mask=(pixel < count)[:, None])


@triton.jit
def _filter_of_pair(
    w, row, s_out, s_in, s_row, s_col, IN: tl.constexpr, OUT: tl.constexpr, TURNED: tl.constexpr, DTYPE: tl.constexpr
):
    """A row of the filter for two neighbouring pixels: from four pixels, [4·IN], to two, [2·OUT]."""
    source = tl.arange(0, 4 * IN)[:, None]
    target = tl.arange(0, 2 * OUT)[None, :]
    column = source // IN - target // OUT
    inside = (column >= 0) & (column < 3)
    if TURNED:
        row, column = 2 - row, 2 - column
    at = target % OUT * s_out + source % IN * s_in + row * s_row + column * s_col
    return tl.load(w + at, mask=inside, other=0.0).to(DTYPE)


@triton.jit
def _convolve_squares(
    x, w, y, squares, height, width, s_out, s_in, s_row, s_col,
    IN: tl.constexpr, OUT: tl.constexpr, TURNED: tl.constexpr, SQUARES: tl.constexpr,
):  # fmt: skip
    top = _filter_of_pair(w, 0, s_out, s_in, s_row, s_col, IN, OUT, TURNED, x.dtype.element_ty)
    middle = _filter_of_pair(w, 1, s_out, s_in, s_row, s_col, IN, OUT, TURNED, x.dtype.element_ty)
    bottom = _filter_of_pair(w, 2, s_out, s_in, s_row, s_col, IN, OUT, TURNED, x.dtype.element_ty)
    source = tl.arange(0, 4 * IN)
    target = tl.arange(0, 2 * OUT)
    in_row = (width + 1) // 2
    in_image = in_row * ((height + 1) // 2)
    for first in range(tl.program_id(0) * SQUARES, squares, tl.num_programs(0) * SQUARES):
        square = first + tl.arange(0, SQUARES)
        row = square % in_image // in_row * 2
        column = square % in_row * 2
        pixel = (square // in_image * height + row) * width + column
        beside = column[:, None] + (source // IN - 1)[None, :]
        inside = (square < squares)[:, None] & (beside >= 0) & (beside < width)
        has_second = (row + 1 < height)[:, None]
        place = x + pixel[:, None] * IN + (source - IN)[None, :]
        values = tl.load(place - width * IN, mask=inside & (row > 0)[:, None], other=0.0)
        upper = tl.dot(values, top)
        values = tl.load(place, mask=inside, other=0.0)
        upper = tl.dot(values, middle, upper)
        lower = tl.dot(values, top)
        values = tl.load(place + width * IN, mask=inside & has_second, other=0.0)
        upper = tl.dot(values, bottom, upper)
        lower = tl.dot(values, middle, lower)
        values = tl.load(place + 2 * width * IN, mask=inside & (row + 2 < height)[:, None], other=0.0)
        lower = tl.dot(values, bottom, lower)
        inside = (square < squares)[:, None] & (column[:, None] + (target // OUT)[None, :] < width)
        place = y + pixel[:, None] * OUT + target[None, :]
        tl.store(place, upper.to(y.dtype.element_ty), mask=inside)
        tl.store(place + width * OUT, lower.to(y.dtype.element_ty), mask=inside & has_second)


@triton.jit
def _filter_gradient(
    x, g, partial, count, height, width, tiles, IN: tl.constexpr, OUT: tl.constexpr, PIXELS: tl.constexpr
):
    program = tl.program_id(0)
    tap_row = tl.program_id(1)
    inputs = tl.arange(0, IN)
    outputs = tl.arange(0, OUT)
    left = tl.zeros([IN, OUT], tl.float32)
    middle = tl.zeros([IN, OUT], tl.float32)
    right = tl.zeros([IN, OUT], tl.float32)
    for tile in range(tiles):
        pixel = (program * tiles + tile) * PIXELS + tl.arange(0, PIXELS)
        column = pixel % width
        row = (pixel // width) % height + tap_row - 1
        gradient = tl.load(g + pixel[:, None] * OUT + outputs[None, :], mask=(pixel < count)[:, None], other=0.0)
        inside = (pixel < count) & (row >= 0) & (row < height)
        place = (pixel + (tap_row - 1) * width)[None, :] * IN + inputs[:, None]
        values = tl.load(x + place - IN, mask=(inside & (column >= 1))[None, :], other=0.0)
        left = tl.dot(values, gradient, left)
        values = tl.load(x + place, mask=inside[None, :], other=0.0)
        middle = tl.dot(values, gradient, middle)
        values = tl.load(x + place + IN, mask=(inside & (column < width - 1))[None, :], other=0.0)
        right = tl.dot(values, gradient, right)
    place = partial + (program * 9 + tap_row * 3) * IN * OUT + inputs[:, None] * OUT + outputs[None, :]
    tl.store(place, left)
    tl.store(place + IN * OUT, middle)
    tl.store(place + 2 * IN * OUT, right)


def _run(x: Tensor, weight: Tensor, turned: bool) -> Tensor:
    images, inputs, height, width = x.shape
    strides = weight.stride()
    outputs = weight.shape[1 if turned else 0]
    if turned:
        strides = (strides[1], strides[0], *strides[2:])
    y = torch.empty((images, outputs, height, width), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    if inputs == outputs == 16:
        squares = images * triton.cdiv(height, 2) * triton.cdiv(width, 2)
        _convolve_squares[(min(_SQUARE_PROGRAMS, triton.cdiv(squares, _SQUARES)),)](
            x, weight, y, squares, height, width, *strides,
            IN=inputs, OUT=outputs, TURNED=turned, SQUARES=_SQUARES, num_stages=1,
        )  # fmt: skip
        return y
    count, pixels = images * height * width, _PIXELS[outputs]
    _convolve[(triton.cdiv(count, pixels),)](
        x, weight, y, count, height, width, *strides,
        IN=inputs, OUT=outputs, TURNED=turned, PIXELS=pixels, num_warps=_WARPS[outputs],
    )  # fmt: skip
    return y


def _run_filter_gradient(x: Tensor, g: Tensor) -> Tensor:
    images, inputs, height, width = x.shape
    outputs = g.shape[1]
    count, pixels = images * height * width, _FILTER_PIXELS[outputs]
    pieces = triton.cdiv(count, pixels)
    tiles = triton.cdiv(pieces, _FILTER_PROGRAMS)
    programs = triton.cdiv(pieces, tiles)
    partial = torch.empty((programs, 9, inputs, outputs), dtype=torch.float32, device=x.device)
    _filter_gradient[(programs, 3)](
        x, g, partial, count, height, width, tiles, IN=inputs, OUT=outputs, PIXELS=pixels, num_warps=4
    )
    return partial.sum(0).view(3, 3, inputs, outputs).permute(3, 2, 0, 1)


class _Conv3x3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        return _run(x, weight, turned=False)

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        g = g.contiguous(memory_format=torch.channels_last)
        return _run(g, weight, turned=True), _run_filter_gradient(x, g)


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve x, half precision [N, C, H, W], padded by one, with a filter [C', C, 3, 3] in x's precision or fp32."""
    return _Conv3x3.apply(x, weight)
