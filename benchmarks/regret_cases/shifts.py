"""Shifts that are not those of ImageNet-C, for pictures, tables and sounds.

Half of them are for development, the other half is only used in the final measurement (`HALVES`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Shift = Callable[[Tensor, torch.Generator], Tensor]


def _noise(std: float) -> Shift:
    return lambda x, draws: x + std * torch.randn(x.shape, generator=draws)


def _contrast(factor: float) -> Shift:
    return lambda x, draws: x.mean((1, 2, 3), keepdim=True) * (1 - factor) + x * factor


def _scaled(gain: float, offset: float = 0.0) -> Shift:
    return lambda x, draws: gain * x + offset


def _gamma(exponent: float) -> Shift:
    return lambda x, draws: x.clamp(0, 1) ** exponent


def _blur(relative_std: float) -> Shift:
    """A Gaussian with this standard deviation, relative to the width of the picture."""

    def blur(x: Tensor, draws: torch.Generator) -> Tensor:
        std = relative_std * x.shape[-1]
        radius = max(math.ceil(2 * std), 1)
        offsets = torch.arange(-radius, radius + 1, dtype=x.dtype)
        kernel = torch.exp(-((offsets / std) ** 2) / 2)
        kernel = kernel / kernel.sum()
        channels = x.shape[1]
        padded = F.pad(x, [radius] * 4, mode="replicate")
        rows = F.conv2d(padded, kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
        return F.conv2d(rows, kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)

    return blur


def _translated(relative: float) -> Shift:
    """Moved to the right and down by this share of the width, at least a pixel; the border is repeated."""

    def translate(x: Tensor, draws: torch.Generator) -> Tensor:
        pixels = max(round(relative * x.shape[-1]), 1)
        padded = F.pad(x, [pixels, 0, pixels, 0], mode="replicate")
        return padded[..., : x.shape[-2], : x.shape[-1]]

    return translate


def _erased(share: float) -> Shift:
    """Pixels, or features, that are zero, drawn for each example."""

    def erase(x: Tensor, draws: torch.Generator) -> Tensor:
        shape = (len(x), 1, *x.shape[2:]) if x.dim() > 2 else x.shape
        return torch.where(torch.rand(shape, generator=draws) < share, torch.zeros(()), x)

    return erase


def _resolution(factor: float) -> Shift:
    def resize(x: Tensor, draws: torch.Generator) -> Tensor:
        small = F.interpolate(x, scale_factor=factor, mode="area")
        return F.interpolate(small, size=x.shape[-2:], mode="bilinear", align_corners=False)

    return resize


PICTURES: dict[str, tuple[str, Shift]] = {
    "contrast 0.4": ("development", _contrast(0.4)),
    "contrast 0.2": ("development", _contrast(0.2)),
    "offset +0.3": ("development", _scaled(1.0, 0.3)),
    "offset -0.3": ("development", _scaled(1.0, -0.3)),
    "blur 1/32": ("development", _blur(1 / 32)),
    "blur 1/12": ("development", _blur(1 / 12)),
    "noise 0.1": ("development", _noise(0.1)),
    "noise 0.3": ("development", _noise(0.3)),
    "translation 1/32": ("development", _translated(1 / 32)),
    "translation 1/10": ("development", _translated(1 / 10)),
    "gain 0.5": ("test", _scaled(0.5)),
    "gain 2": ("test", _scaled(2.0)),
    "gamma 0.4": ("test", _gamma(0.4)),
    "gamma 2.5": ("test", _gamma(2.5)),
    "inversion": ("test", _scaled(-1.0, 1.0)),
    "half inversion": ("test", _scaled(-0.5, 0.75)),
    "erased 0.1": ("test", _erased(0.1)),
    "erased 0.4": ("test", _erased(0.4)),
    "resolution 1/2": ("test", _resolution(0.5)),
    "resolution 3/8": ("test", _resolution(0.375)),
}
"""Of pictures with values from 0 to 1, which they are clamped to afterwards."""

FEATURES: dict[str, tuple[str, Shift]] = {
    "noise 0.3": ("development", _noise(0.3)),
    "noise 1": ("development", _noise(1.0)),
    "offset +0.3": ("development", _scaled(1.0, 0.3)),
    "offset -1": ("development", _scaled(1.0, -1.0)),
    "gain 0.5": ("test", _scaled(0.5)),
    "gain 2": ("test", _scaled(2.0)),
    "erased 0.1": ("test", _erased(0.1)),
    "erased 0.4": ("test", _erased(0.4)),
}
"""Of standardised features of tables and sounds."""


def shifts_of(inputs: Tensor, half: str) -> dict[str, Shift]:
    """The shifts of one half, by name, for inputs of this kind."""
    shifts = PICTURES if inputs.dim() == 4 else FEATURES
    return {name: shift for name, (of_half, shift) in shifts.items() if of_half == half}


def shifted(inputs: Tensor, shift: Shift, seed: int) -> Tensor:
    values = shift(inputs, torch.Generator().manual_seed(seed))
    return values.clamp(0, 1) if inputs.dim() == 4 else values
