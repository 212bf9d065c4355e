"""Batch normalisation in training, with the addition of the shortcut and the ReLU that follow it, in channels_last.

y = relu(a x + b + shortcut) with a = γ / sqrt(var + eps), b = β − a · mean, over rows = N · H · W values per channel.
With g = dy where y > 0 and x̂ the normalised input, dβ = Σ g, dγ = Σ g x̂, d shortcut = g and
dx = a (g − dβ / rows − x̂ dγ / rows). Sums are computed by a fixed number of programs and then added in a fixed order,
so that they are the same bit for bit every time.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

_PROGRAMS = 256
_VALUES = 8192


@triton.jit
def _masked_gradient(dy, y, place, inside, RELU: tl.constexpr):
    g = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        g = tl.where(tl.load(y + place, mask=inside, other=0.0).to(tl.float32) > 0, g, 0.0)
    return g


@triton.jit
def _sums(x, partial, rows, tiles, C: tl.constexpr, ROWS: tl.constexpr):
    program = tl.program_id(0)
    channel = tl.arange(0, C)
    first = tl.zeros([C], tl.float32)
    second = tl.zeros([C], tl.float32)
    for tile in range(tiles):
        row = (program * tiles + tile) * ROWS + tl.arange(0, ROWS)
        place = row[:, None] * C + channel[None, :]
        value = tl.load(x + place, mask=(row < rows)[:, None], other=0.0).to(tl.float32)
        first += tl.sum(value, 0)
        second += tl.sum(value * value, 0)
    tl.store(partial + program * 2 * C + channel, first)
    tl.store(partial + program * 2 * C + C + channel, second)


@triton.jit
def _gradient_sums(
    x, y, dy, mean, scale, partial, rows, tiles, C: tl.constexpr, ROWS: tl.constexpr, RELU: tl.constexpr
):
    program = tl.program_id(0)
    channel = tl.arange(0, C)
    m = tl.load(mean + channel)
    s = tl.load(scale + channel)
    plain = tl.zeros([C], tl.float32)
    along = tl.zeros([C], tl.float32)
    for tile in range(tiles):
        row = (program * tiles + tile) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None]
        place = row[:, None] * C + channel[None, :]
        g = _masked_gradient(dy, y, place, inside, RELU)
        hat = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - m[None, :]) * s[None, :]
        plain += tl.sum(g, 0)
        along += tl.sum(g * hat, 0)
    tl.store(partial + program * 2 * C + channel, plain)
    tl.store(partial + program * 2 * C + C + channel, along)


@triton.jit
def _total(partial, offset, programs, C: tl.constexpr, PROGRAMS: tl.constexpr):
    program = tl.arange(0, PROGRAMS)
    place = program[:, None] * 2 * C + offset + tl.arange(0, C)[None, :]
    return tl.sum(tl.load(partial + place, mask=(program < programs)[:, None], other=0.0), 0)


@triton.jit
def _statistics(
    partial, mean, scale, running_mean, running_var, tracked, rows, programs, momentum, eps,
    C: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    channel = tl.arange(0, C)
    m = _total(partial, 0, programs, C, PROGRAMS) / rows
    v = tl.maximum(_total(partial, C, programs, C, PROGRAMS) / rows - m * m, 0.0)
    tl.store(mean + channel, m)
    tl.store(scale + channel, 1 / tl.sqrt(v + eps))
    old = tl.load(running_mean + channel)
    tl.store(running_mean + channel, old + momentum * (m - old))
    old = tl.load(running_var + channel)
    tl.store(running_var + channel, old + momentum * (v * rows / (rows - 1) - old))
    tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def _gradient_totals(partial, dgamma, dbeta, programs, C: tl.constexpr, PROGRAMS: tl.constexpr):
    channel = tl.arange(0, C)
    tl.store(dbeta + channel, _total(partial, 0, programs, C, PROGRAMS))
    tl.store(dgamma + channel, _total(partial, C, programs, C, PROGRAMS))


@triton.jit
def _apply(
    x, gamma, beta, mean, scale, shortcut, y, rows,
    C: tl.constexpr, ROWS: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    channel = tl.arange(0, C)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    place = row[:, None] * C + channel[None, :]
    a = tl.load(gamma + channel) * tl.load(scale + channel)
    b = tl.load(beta + channel) - tl.load(mean + channel) * a
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
    if ADD:
        value += tl.load(shortcut + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _gradient(
    x, y, dy, gamma, mean, scale, dgamma, dbeta, dx, dshortcut, rows,
    C: tl.constexpr, ROWS: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    channel = tl.arange(0, C)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    place = row[:, None] * C + channel[None, :]
    s = tl.load(scale + channel)
    g = _masked_gradient(dy, y, place, inside, RELU)
    if ADD:
        tl.store(dshortcut + place, g.to(dshortcut.dtype.element_ty), mask=inside)
    hat = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + channel)[None, :]) * s[None, :]
    first = tl.load(dbeta + channel) / rows
    second = tl.load(dgamma + channel) / rows
    result = (g - first[None, :] - hat * second[None, :]) * (tl.load(gamma + channel) * s)[None, :]
    tl.store(dx + place, result.to(dx.dtype.element_ty), mask=inside)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, gamma: Tensor, beta: Tensor, shortcut: Tensor | None, layer, relu: bool) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        add = shortcut is not None
        shortcut = shortcut.contiguous(memory_format=torch.channels_last) if add else x
        channels, rows = x.shape[1], x.numel() // x.shape[1]
        size, pieces, tiles, programs = _division(rows, channels)
        partial = torch.empty((programs, 2, channels), dtype=torch.float32, device=x.device)
        mean, scale = torch.empty((2, channels), dtype=torch.float32, device=x.device)
        _sums[(programs,)](x, partial, rows, tiles, C=channels, ROWS=size, num_warps=8)
        _statistics[(1,)](
            partial, mean, scale, layer.running_mean, layer.running_var, layer.num_batches_tracked,
            rows, programs, layer.momentum, layer.eps, C=channels, PROGRAMS=_PROGRAMS, num_warps=8,
        )  # fmt: skip
        y = torch.empty_like(x)
        ctx.flags = {"C": channels, "ROWS": size, "RELU": relu, "ADD": add}
        _apply[(pieces,)](x, gamma, beta, mean, scale, shortcut, y, rows, **ctx.flags, num_warps=8)
        ctx.save_for_backward(x, y, gamma, mean, scale)
        return y

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, gamma, mean, scale = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        channels, relu, add = ctx.flags["C"], ctx.flags["RELU"], ctx.flags["ADD"]
        rows = x.numel() // channels
        size, pieces, tiles, programs = _division(rows, channels)
        partial = torch.empty((programs, 2, channels), dtype=torch.float32, device=x.device)
        dgamma, dbeta = torch.empty_like(mean), torch.empty_like(mean)
        _gradient_sums[(programs,)](
            x, y, dy, mean, scale, partial, rows, tiles, C=channels, ROWS=size, RELU=relu, num_warps=8
        )
        _gradient_totals[(1,)](partial, dgamma, dbeta, programs, C=channels, PROGRAMS=_PROGRAMS, num_warps=8)
        dx = torch.empty_like(x)
        dshortcut = torch.empty_like(x) if add else dx
        _gradient[(pieces,)](x, y, dy, gamma, mean, scale, dgamma, dbeta, dx, dshortcut, rows, **ctx.flags, num_warps=8)
        return dx, dgamma, dbeta, dshortcut if add else None, None, None


def _division(rows: int, channels: int) -> tuple[int, int, int, int]:
    """Rows per piece, number of pieces, pieces per program of the sums, and number of programs."""
    size = _VALUES // channels
    pieces = triton.cdiv(rows, size)
    tiles = triton.cdiv(pieces, _PROGRAMS)
    return size, pieces, tiles, triton.cdiv(pieces, tiles)


def batch_norm(layer: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None, *, relu: bool) -> Tensor:
    """relu(layer(x) + shortcut) of x [N, C, H, W]; the running statistics are updated as usual."""
    return _BatchNorm.apply(x, layer.weight, layer.bias, shortcut, layer, relu)
