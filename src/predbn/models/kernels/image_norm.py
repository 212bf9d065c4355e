"""Normalisation of every image by itself (instance, layer, group), with the shortcut and the ReLU that follow it.

A program holds one image, [pixels, C], in channels_last. With the mean m and the variance v over the pixels and the
channels of a group, x̂ = (x − m) / sqrt(v + eps), y = relu(γ x̂ + β + shortcut). With h = dy where y > 0 and g = γ h,
means over the group again, dx = (g − mean(g) − x̂ · mean(g x̂)) / sqrt(v + eps) and d shortcut = h.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def _over_group(sums, C: tl.constexpr, PIXELS: tl.constexpr, GROUP: tl.constexpr):
    """From sums per channel to means over the group of each channel."""
    channel = tl.arange(0, C)
    together = (channel[:, None] // GROUP == channel[None, :] // GROUP).to(tl.float32)
    return tl.sum(together * sums[None, :], 1) / (GROUP * PIXELS)


@triton.jit
def _forward(
    x, gamma, beta, shortcut, y, mean, scale, eps,
    C: tl.constexpr, PIXELS: tl.constexpr, GROUP: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr,
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
    if ADD:
        result += tl.load(shortcut + place).to(tl.float32)
    if RELU:
        result = tl.maximum(result, 0.0)
    tl.store(y + place, result.to(y.dtype.element_ty))
    tl.store(mean + image * C + channel, m)
    tl.store(scale + image * C + channel, s)


@triton.jit
def _backward(
    x, y, gamma, dy, mean, scale, dx, dshortcut, dgamma, dbeta,
    C: tl.constexpr, PIXELS: tl.constexpr, GROUP: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, C)
    place = image * PIXELS * C + tl.arange(0, PIXELS)[:, None] * C + channel[None, :]
    m = tl.load(mean + image * C + channel)
    s = tl.load(scale + image * C + channel)
    hat = (tl.load(x + place).to(tl.float32) - m[None, :]) * s[None, :]
    g = tl.load(dy + place).to(tl.float32)
    if RELU:
        g = tl.where(tl.load(y + place).to(tl.float32) > 0, g, 0.0)
    if ADD:
        tl.store(dshortcut + place, g.to(dshortcut.dtype.element_ty))
    along = tl.sum(g * hat, 0)
    plain = tl.sum(g, 0)
    tl.store(dgamma + image * C + channel, along)
    tl.store(dbeta + image * C + channel, plain)
    weight = tl.load(gamma + channel)
    first = _over_group(plain * weight, C, PIXELS, GROUP)
    second = _over_group(along * weight, C, PIXELS, GROUP)
    result = (g * weight[None, :] - first[None, :] - hat * second[None, :]) * s[None, :]
    tl.store(dx + place, result.to(dx.dtype.element_ty))


class _ImageNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, x: Tensor, gamma: Tensor, beta: Tensor, shortcut: Tensor | None, groups: int, eps: float, relu: bool
    ) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        add = shortcut is not None
        shortcut = shortcut.contiguous(memory_format=torch.channels_last) if add else x
        images, channels, height, width = x.shape
        y = torch.empty_like(x)
        mean = torch.empty((images, channels), dtype=torch.float32, device=x.device)
        scale = torch.empty_like(mean)
        ctx.flags = {"C": channels, "PIXELS": height * width, "GROUP": channels // groups, "RELU": relu, "ADD": add}
        _forward[(images,)](x, gamma, beta, shortcut, y, mean, scale, eps, **ctx.flags, num_warps=_warps(x))
        ctx.save_for_backward(x, y, gamma, mean, scale)
        return y

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, gamma, mean, scale = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        add = ctx.flags["ADD"]
        dx = torch.empty_like(x)
        dshortcut = torch.empty_like(x) if add else dx
        dgamma, dbeta = torch.empty_like(mean), torch.empty_like(mean)
        _backward[(len(x),)](
            x, y, gamma, dy, mean, scale, dx, dshortcut, dgamma, dbeta, **ctx.flags, num_warps=2 * _warps(x)
        )
        return dx, dgamma.sum(0), dbeta.sum(0), dshortcut if add else None, None, None, None


def _warps(x: Tensor) -> int:
    """So many warps that each thread has 64 values of an image."""
    return max(1, x[0].numel() // (32 * 64))


def image_norm(layer: nn.GroupNorm | nn.InstanceNorm2d, x: Tensor, shortcut: Tensor | None, *, relu: bool) -> Tensor:
    """relu(layer(x) + shortcut) of x [N, C, H, W], with at most 2^14 values per image."""
    groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else layer.num_features
    return _ImageNorm.apply(x, layer.weight, layer.bias, shortcut, groups, layer.eps, relu)
