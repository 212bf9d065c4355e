"""Snow, frost and fog."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws

from .motion_blur import motion_blur_at_angle
from .registry import register
from .separable import apply_separable, zoom_operator

_GREY = (0.299, 0.587, 0.114)

# The five photographs of the benchmark, in the folder `frost` beside this file.
_FROST_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


@register(
    "snow",
    family="weather",
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
    mixes_channels=True,
)
def snow(x: Tensor, c: tuple[float, float, float, float, float, float, float], draws: Draws) -> Tensor:
    """Whiten the image, x ← k·x + (1 − k)·max(x, 1.5·grey(x) + 0.5), and add flakes and their rotation by 180°.

    The flakes are normal noise N(m, s), zoomed by z, set to 0 below a threshold, and motion blurred with an angle
    uniform in [−135°, −45°). Only the middle of the noise, which remains after the zoom, is drawn.
    """
    mean, deviation, zoom, threshold, radius, sigma, kept = c
    height, width = x.shape[-2:]
    rows = zoom_operator(height, zoom, x.device, crop=False)
    columns = zoom_operator(width, zoom, x.device, crop=False)
    noise = draws.normal(rows.matrix.shape[1], columns.matrix.shape[1]).mul_(deviation).add_(mean)
    layer = noise if zoom == 1 else apply_separable(noise, rows, columns)
    layer = torch.threshold_(layer, threshold, 0.0).clamp_(0, 1).mul_(255).to(torch.int32).to(torch.uint8)
    angle = draws.uniform().mul_(90).sub_(135)
    flakes = motion_blur_at_angle(layer[:, None], radius, sigma, angle).to(torch.float32).div_(255)
    red, green, blue = x.unbind(1)
    grey = (red * _GREY[0]).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2])
    pale = torch.maximum(x, grey.mul_(1.5).add_(0.5)[:, None])
    return pale.mul_(1 - kept).add_(x, alpha=kept).add_(flakes.add_(flakes.flip(2, 3)))


@register(
    "frost",
    family="weather",
    cifar=((1.0, 0.2, 0.2), (1.0, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    imagenet=((1.0, 0.4, 1.0), (0.8, 0.6, 1.0), (0.7, 0.7, 1.0), (0.65, 0.7, 1.0), (0.6, 0.75, 1.0)),
    works_on="uint8",
    chunk=1 << 20,
    mixes_channels=True,
)
def frost(x: Tensor, c: tuple[float, float, float], draws: Draws) -> Tensor:
    """a·x + b·(a random crop of one of five frost pictures, resized by the third constant)."""
    image_weight, frost_weight, scale = c
    crops = frost_crops(draws, scale, *x.shape[-2:]).to(torch.float32)
    mixed = crops.mul_(frost_weight).add_(x, alpha=image_weight).add_(1e-4)
    return mixed.clamp_(max=255).to(torch.int32).to(torch.uint8)


@lru_cache(maxsize=1)
def _decoded_frost() -> tuple[npt.NDArray[np.uint8], ...]:
    """The five pictures at full size, in OpenCV's layout; decoded once per process."""
    pictures = []
    for name in _FROST_FILES:
        picture = cv2.imread(str(Path(__file__).parent / "frost" / name))
        assert picture is not None, f"{name} is missing from the package"
        pictures.append(picture.astype(np.uint8, copy=False))
    return tuple(pictures)


@lru_cache(maxsize=8)
def frost_pictures(scale: float, height: int, width: int, device: torch.device) -> tuple[Tensor, ...]:
    """The pictures [3, rows, columns], uint8 RGB, resized by `scale`; once for each size of image and device.

    A picture that is not at least one pixel larger than an image of this size is enlarged until it is.
    """
    pictures = []
    for picture in _decoded_frost():
        resized = picture if scale == 1 else cv2.resize(picture, (0, 0), fx=scale, fy=scale)
        rows, columns = resized.shape[:2]
        enlarge = max((height + 1) / rows, (width + 1) / columns)
        if enlarge > 1:
            resized = cv2.resize(resized, (math.ceil(columns * enlarge), math.ceil(rows * enlarge)))
        pictures.append(torch.from_numpy(resized[..., ::-1].transpose(2, 0, 1).copy()).to(device))
    return tuple(pictures)


def frost_crops(draws: Draws, scale: float, height: int, width: int) -> Tensor:
    """[N, 3, height, width] uint8: for each image a crop of one of the pictures, all equally likely."""
    which = draws.integers(0, len(_FROST_FILES)).cpu()
    position = draws.uniform(2).cpu().double()
    crops = torch.empty(len(draws), 3, height, width, dtype=torch.uint8, device=draws.device)
    for number, picture in enumerate(frost_pictures(scale, height, width, draws.device)):
        images = (which == number).nonzero().squeeze(1)
        room = torch.tensor([picture.shape[1] - height, picture.shape[2] - width])
        top, left = (position[images] * room).long().to(draws.device).unbind(1)
        windows = picture.unfold(1, height, 1).unfold(2, width, 1).permute(1, 2, 0, 3, 4)
        crops[images.to(draws.device)] = windows[top, left]
    return crops


@register(
    "fog",
    family="weather",
    cifar=((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    imagenet=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    chunk=1 << 21,
)
def fog(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """(x + c·plasma)·max(x)/(max(x) + c), with a plasma whose side is the next power of two."""
    amount, decay = c
    height, width = x.shape[-2:]
    side = 1 << (max(height, width) - 1).bit_length()
    mist = plasma(draws, side, decay)[:, None, :height, :width]
    brightest = x.flatten(1).amax(1).view(-1, 1, 1, 1)
    share = brightest / (brightest + amount)
    return torch.addcmul(mist * (amount * share), x, share)


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """[N, side, side] plasma fractals, each scaled to the range from 0 to 1; the side is a power of two.

    One level of the diamond-square algorithm turns n×n points into 2n×2n. The plane wraps around, so that every new
    point has four neighbours:

        a centre is the mean of the four corners around it,
        the middle of an edge is the mean of its two corners and of the two centres beside it,

    each plus an offset wibble·U(−wibble, wibble). wibble is 100 at the first level and is divided by `decay` after each
    level, so that the offsets shrink with the square of the decay.
    """
    number = len(draws)
    offsets = draws.uniform(side * side).mul_(2).sub_(1)
    points = torch.zeros(number, 1, 1, device=draws.device)
    wibble = 100.0
    while (size := points.shape[-1]) < side:
        level = offsets[:, size**2 : 4 * size**2].mul_(wibble**2)
        points = _refine(points, level.view(number, 3, size, size))
        wibble /= decay
    points.sub_(points.amin((1, 2), keepdim=True))
    return points.div_(points.amax((1, 2), keepdim=True))


def _refine(corners: Tensor, offsets: Tensor) -> Tensor:
    """One level: from n×n points and the offsets [N, 3, n, n] of centres and edges to 2n×2n points."""
    centres, horizontal, vertical = offsets.unbind(1)
    pairs = corners + corners.roll(-1, 1)
    centres.add_(pairs, alpha=0.25).add_(pairs.roll(-1, 2), alpha=0.25)
    vertical.add_(pairs, alpha=0.25).add_(centres, alpha=0.25).add_(centres.roll(1, 2), alpha=0.25)
    horizontal.add_(corners, alpha=0.25).add_(corners.roll(-1, 2), alpha=0.25)
    horizontal.add_(centres, alpha=0.25).add_(centres.roll(1, 1), alpha=0.25)
    even, odd = torch.stack([corners, horizontal], -1).flatten(2), torch.stack([vertical, centres], -1).flatten(2)
    return torch.stack([even, odd], 2).flatten(1, 2)
