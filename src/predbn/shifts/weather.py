"""The four kinds of weather: snow, frost, fog and spatter."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import Draws

from .frost import frost_crops
from .motion import motion_blur_uint8
from .plasma import plasma
from .registry import register
from .separable import gaussian, sandwich, zoom_operator
from .water import droplets

__all__ = ["fog", "frost", "snow", "spatter"]

_GREY = (0.299, 0.587, 0.114)
_TURQUOISE = (175 / 255, 238 / 255, 238 / 255)
_BROWN = (63 / 255, 42 / 255, 20 / 255)


def _colour(rgb: tuple[float, float, float], x: Tensor) -> Tensor:
    return torch.tensor(rgb, device=x.device).view(3, 1, 1)


@register(
    "snow",
    family="weather",
    set="standard",
    cifar=(
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    ),
    imagenet=(
        (0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
    ),
    chunk=1 << 21,
)
def snow(x: Tensor, c: tuple[float, float, float, float, float, float, float], draws: Draws) -> Tensor:
    """Whiten the image, x ← k·x + (1 − k)·max(x, 1.5·grey(x) + 0.5), and add flakes and their 180° rotation.

    Flakes are normal noise N(m, s), zoomed in by z, without what is under t, and motion blurred at an angle
    uniform in [−135°, −45°). Only the middle that the zoom shows is drawn.
    """
    mean, deviation, zoom, threshold, radius, sigma, kept = c
    height, width = x.shape[-2:]
    rows = zoom_operator(height, zoom, x.device, crop=False)
    columns = zoom_operator(width, zoom, x.device, crop=False)
    noise = draws.normal(rows.matrix.shape[1], columns.matrix.shape[1]).mul_(deviation).add_(mean)
    layer = noise if zoom == 1 else sandwich(noise, rows, columns)
    layer = torch.threshold_(layer, threshold, 0.0).clamp_(0, 1).mul_(255).to(torch.int32).to(torch.uint8)
    angle = draws.uniform().mul_(90).sub_(135)
    flakes = motion_blur_uint8(layer[:, None], radius, sigma, angle).to(torch.float32).div_(255)
    red, green, blue = x.unbind(1)
    grey = (red * _GREY[0]).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2])
    pale = torch.maximum(x, grey.mul_(1.5).add_(0.5)[:, None])
    return pale.mul_(1 - kept).add_(x, alpha=kept).add_(flakes.add_(flakes.flip(2, 3)))


@register(
    "frost",
    family="weather",
    set="standard",
    cifar=((1.0, 0.2, 0.2), (1.0, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    imagenet=((1.0, 0.4, 1.0), (0.8, 0.6, 1.0), (0.7, 0.7, 1.0), (0.65, 0.7, 1.0), (0.6, 0.75, 1.0)),
    works_on="uint8",
    chunk=1 << 20,
)
def frost(x: Tensor, c: tuple[float, float, float], draws: Draws) -> Tensor:
    """a·x + b·(a random crop of a random one of five frost pictures, resized by the third constant)."""
    own, ice, scale = c
    crops = frost_crops(draws, scale, *x.shape[-2:]).to(torch.float32)
    mixed = crops.mul_(ice).add_(x, alpha=own).add_(1e-4)
    return mixed.clamp_(max=255).to(torch.int32).to(torch.uint8)


@register(
    "fog",
    family="weather",
    set="standard",
    cifar=((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    imagenet=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    chunk=1 << 21,
)
def fog(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """(x + c·plasma)·max(x)/(max(x) + c), the plasma's side being the next power of two."""
    amount, decay = c
    height, width = x.shape[-2:]
    side = 1 << (max(height, width) - 1).bit_length()
    mist = plasma(draws, side, decay)[:, None, :height, :width]
    brightest = x.flatten(1).amax(1).view(-1, 1, 1, 1)
    share = brightest / (brightest + amount)
    return torch.addcmul(mist * (amount * share), x, share)


@register(
    "spatter",
    family="weather",
    set="extra",
    cifar=(
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1.0, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    imagenet=(
        (0.65, 0.3, 4.0, 0.69, 0.6, 0),
        (0.65, 0.3, 3.0, 0.68, 0.6, 0),
        (0.65, 0.3, 2.0, 0.68, 0.5, 0),
        (0.65, 0.3, 1.0, 0.65, 1.5, 1),
        (0.67, 0.4, 1.0, 0.65, 1.5, 1),
    ),
    smallest=3,
    chunk=1 << 20,
)
def spatter(x: Tensor, c: tuple[float, float, float, float, float, int], draws: Draws) -> Tensor:
    """Drops where smoothed noise N(m, s) exceeds t: turquoise water added to x, or brown mud laid over it."""
    mean, deviation, sigma, threshold, strength, mud = c
    noise = draws.normal(*x.shape[-2:]).mul_(deviation).add_(mean)
    layer = torch.threshold_(gaussian(noise, sigma), threshold, 0.0)
    if mud:
        cover = torch.threshold_(gaussian((layer > threshold).to(torch.float32), strength), 0.8, 0.0)[:, None]
        return torch.lerp(x, _colour(_BROWN, x), cover)
    return torch.addcmul(x, droplets(layer)[:, None], _colour(_TURQUOISE, x), value=strength)
