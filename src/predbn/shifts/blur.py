"""The five blurs: defocus, glass, motion, zoom and Gaussian."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from predbn.common import Draws

from .defocus import defocus
from .glass import shuffled_pixels
from .motion import motion_blur_uint8
from .registry import register
from .separable import add_sandwich, gaussian, zoom_operator

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]


@register(
    "gaussian_blur",
    family="blur",
    set="extra",
    cifar=(0.4, 0.6, 0.7, 0.8, 1.0),
    imagenet=(1.0, 2.0, 3.0, 4.0, 6.0),
    chunk=1 << 20,
)
def gaussian_blur(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Gaussian filter of standard deviation c, cut off at 4c, the edge pixel repeated outside."""
    return gaussian(x, c)


@register(
    "defocus_blur",
    family="blur",
    set="standard",
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    imagenet=((3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
)
def defocus_blur(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """The image of a lens out of focus: a disk of radius c₀ smoothed by c₁; the border is mirrored."""
    return defocus(x, *c)


@register(
    "glass_blur",
    family="blur",
    set="standard",
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    works_on="uint8",
    smallest=9,
)
def glass_blur(x: Tensor, c: tuple[float, int, int], draws: Draws) -> Tensor:
    """Frosted glass: blur by σ, shuffle the pixels within a distance for some rounds, blur by σ again."""
    sigma, reach, rounds = c
    number, channels, height, width = x.shape
    blurred = _truncated_gaussian(x, sigma).transpose(0, 1).reshape(channels, -1)
    shown = shuffled_pixels(draws, height, width, reach, rounds)
    shuffled = torch.stack([plane.index_select(0, shown) for plane in blurred])
    return _truncated_gaussian(shuffled.view(channels, number, height, width).transpose(0, 1), sigma)


def _truncated_gaussian(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of uint8, cut off to uint8; the small term keeps whole numbers whole."""
    if int(4 * sigma + 0.5) == 0:
        return x
    return gaussian(x.to(torch.float32), sigma).add_(1e-4).clamp_(max=255).to(torch.int32).to(torch.uint8)


@register(
    "motion_blur",
    family="blur",
    set="standard",
    cifar=((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
    imagenet=((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
    works_on="uint8",
    chunk=1 << 20,
)
def motion_blur(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """ImageMagick's motion blur of radius c₀ and σ = c₁, at an angle uniform in [−45°, 45°)."""
    return motion_blur_uint8(x, *c, angle=draws.uniform().mul_(90).sub_(45))


@register(
    "zoom_blur",
    family="blur",
    set="standard",
    cifar=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    imagenet=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    smallest=2,
    chunk=1 << 20,
)
def zoom_blur(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """The mean of the image and its centre zooms: (x + Σ_z Z_z·x·Z_zᵀ)/(count + 1), z from 1 to c₀ by c₁.

    numpy's arange decides how many zooms there are, because its rounding sometimes lets the stop itself in.
    The first of them, z = 1, is the image once more.
    """
    stop, step = c
    height, width = x.shape[-2:]
    zooms = np.arange(1, stop, step).tolist()
    rows_first = x.permute(2, 0, 1, 3).contiguous().view(height, -1, width)
    total = rows_first.mul(2)
    for zoom in zooms[1:]:
        rows = zoom_operator(height, zoom, x.device)
        add_sandwich(rows_first, rows, zoom_operator(width, zoom, x.device), total)
    return total.div_(len(zooms) + 1).view(height, *x.shape[:2], width).permute(1, 2, 0, 3)
