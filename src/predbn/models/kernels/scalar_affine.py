"""Fixup's scale and shift, with the shortcut and the ReLU that follow them.

y = relu(s x + b + shortcut) with one s and b for the whole map. With g = dy where y > 0: dx = s g, ds = Σ g x,
db = Σ g, d shortcut = g. The sums are added in a fixed order.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_VALUES = 8192


@triton.jit
def _forward(
    x, scale, shift, shortcut, y, count,
    VALUES: tl.constexpr, SCALED: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * VALUES + tl.arange(0, VALUES)
    inside = place < count
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if SCALED:
        value = value * tl.load(scale)
    value = value + tl.load(shift)
    if ADD:
        value += tl.load(shortcut + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    x, y, dy, scale, dx, dshortcut, partial, count,
    VALUES: tl.constexpr, SCALED: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    place = program * VALUES + tl.arange(0, VALUES)
    inside = place < count
    g = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        g = tl.where(tl.load(y + place, mask=inside, other=0.0).to(tl.float32) > 0, g, 0.0)
    if ADD:
        tl.store(dshortcut + place, g.to(dshortcut.dtype.element_ty), mask=inside)
    tl.store(partial + 2 * program, tl.sum(g, 0))
    if SCALED:
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(partial + 2 * program + 1, tl.sum(g * value, 0))
        g = g * tl.load(scale)
    tl.store(dx + place, g.to(dx.dtype.element_ty), mask=inside)


class _ScalarAffine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, scale: Tensor | None, shift: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        add = shortcut is not None
        shortcut = shortcut.contiguous(memory_format=torch.channels_last) if add else x
        y = torch.empty_like(x)
        ctx.flags = {"VALUES": _VALUES, "SCALED": scale is not None, "RELU": relu, "ADD": add}
        factor = shift if scale is None else scale
        _forward[(triton.cdiv(x.numel(), _VALUES),)](x, factor, shift, shortcut, y, x.numel(), **ctx.flags, num_warps=8)
        ctx.save_for_backward(x, y, factor)
        return y

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, factor = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        programs = triton.cdiv(x.numel(), _VALUES)
        partial = torch.zeros((programs, 2), dtype=torch.float32, device=x.device)
        dx = torch.empty_like(x)
        add = ctx.flags["ADD"]
        dshortcut = torch.empty_like(x) if add else dx
        _backward[(programs,)](x, y, dy, factor, dx, dshortcut, partial, x.numel(), **ctx.flags, num_warps=8)
        dshift, dscale = partial.sum(0)
        return dx, dscale if ctx.flags["SCALED"] else None, dshift, dshortcut if add else None, None


def scalar_affine(x: Tensor, scale: Tensor | None, shift: Tensor, shortcut: Tensor | None, *, relu: bool) -> Tensor:
    """relu(scale · x + shift + shortcut) of x [N, C, H, W]."""
    return _ScalarAffine.apply(x, scale, shift, shortcut, relu)
