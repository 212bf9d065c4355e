"""Normalisation of every image by itself (instance, layer, group) in channels_last, one pass each way.

A program holds one image, [pixels, C]. With the mean m and the variance v over the pixels and the channels of a group,
x̂ = (x − m) / sqrt(v + eps), y = γ x̂ + β; and for the gradient g = γ · dy, with means over the group again,
dx = (g − mean(g) − x̂ · mean(g x̂)) / sqrt(v + eps).
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["group_norm"]


@triton.jit
def _over_group(sums, C: tl.constexpr, PIXELS: tl.constexpr, GROUP: tl.constexpr):
    """Sums per channel to means over the channel's group, again one a channel."""
    channel = tl.arange(0, C)
    together = (channel[:, None] // GROUP == channel[None, :] // GROUP).to(tl.float32)
    return tl.sum(together * sums[None, :], 1) / (GROUP * PIXELS)


@triton.jit
def _forward(
    x, gamma, beta, y, mean, scale, eps, C: tl.constexpr, PIXELS: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, C)
    place = image * PIXELS * C + tl.arange(0, PIXELS)[:, None] * C + channel[None, :]
    value = tl.load(x + place).to(tl.float32)
    m = _over_group(tl.sum(value, 0), C, PIXELS, GROUP)
    value = value - m[None, :]
    v = _over_group(tl.sum(value * value, 0), C, PIXELS, GROUP)
    s = 1 / tl.sqrt(v + eps)
    result = value * (s * tl.load(gamma + channel))[None, :] + tl.load(beta + channel)[None, :]
    tl.store(y + place, result.to(y.dtype.element_ty))
    tl.store(mean + image * C + channel, m)
    tl.store(scale + image * C + channel, s)


@triton.jit
def _backward(x, gamma, dy, mean, scale, dx, dgamma, dbeta, C: tl.constexpr, PIXELS: tl.constexpr, GROUP: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, C)
    place = image * PIXELS * C + tl.arange(0, PIXELS)[:, None] * C + channel[None, :]
    m = tl.load(mean + image * C + channel)
    s = tl.load(scale + image * C + channel)
    hat = (tl.load(x + place).to(tl.float32) - m[None, :]) * s[None, :]
    g = tl.load(dy + place).to(tl.float32)
    along = tl.sum(g * hat, 0)
    plain = tl.sum(g, 0)
    tl.store(dgamma + image * C + channel, along)
    tl.store(dbeta + image * C + channel, plain)
    weight = tl.load(gamma + channel)
    first = _over_group(plain * weight, C, PIXELS, GROUP)
    second = _over_group(along * weight, C, PIXELS, GROUP)
    result = (g * weight[None, :] - first[None, :] - hat * second[None, :]) * s[None, :]
    tl.store(dx + place, result.to(dx.dtype.element_ty))


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        images, channels, height, width = x.shape
        y = torch.empty_like(x)
        mean = torch.empty((images, channels), dtype=torch.float32, device=x.device)
        scale = torch.empty_like(mean)
        ctx.sizes = {"C": channels, "PIXELS": height * width, "GROUP": channels // groups}
        _forward[(images,)](x, gamma, beta, y, mean, scale, eps, **ctx.sizes, num_warps=_warps(x))
        ctx.save_for_backward(x, gamma, mean, scale)
        return y

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, mean, scale = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx = torch.empty_like(x)
        dgamma, dbeta = torch.empty_like(mean), torch.empty_like(mean)
        _backward[(len(x),)](x, gamma, dy, mean, scale, dx, dgamma, dbeta, **ctx.sizes, num_warps=2 * _warps(x))
        return dx, dgamma.sum(0), dbeta.sum(0), None, None


def _warps(x: Tensor) -> int:
    """64 values of an image a thread."""
    return max(1, x[0].numel() // (32 * 64))


def group_norm(x: Tensor, groups: int, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Group normalisation of [N, C, H, W]; C, H · W must be powers of two and an image at most 2^14 values."""
    return _GroupNorm.apply(x, gamma, beta, groups, eps)
