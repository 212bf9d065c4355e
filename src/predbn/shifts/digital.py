"""What processing does to an image: light and colour, coarse pixels, compression."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.shifts.grey import to_grey
from predbn.shifts.layout import planes, write_planes
from predbn.shifts.random import Draws
from predbn.shifts.registry import register
from predbn.shifts.separable import Operator
from predbn.shifts.workers import map_threads

__all__ = ["brightness", "contrast", "jpeg_compression", "pixelate", "saturate"]

_TINY = 1e-8
_SLACK = 1e-4


@register(
    "brightness",
    family="digital",
    set="standard",
    cifar=(0.05, 0.1, 0.15, 0.2, 0.3),
    imagenet=(0.1, 0.2, 0.3, 0.4, 0.5),
)
def brightness(x: Tensor, c: float, draws: Draws) -> Tensor:
    """HSV value V raised by c, up to 1.

    At fixed hue and saturation the colour is proportional to V = max(R, G, B), so the conversion cancels:
    x' = x·V'/V. Black has no hue and becomes the grey V'; a tiny number added to x and V does just that.
    """
    value = torch.maximum(torch.maximum(x[:, 0], x[:, 1]), x[:, 2]).unsqueeze_(1)
    scale = (value + c).clamp_(max=1.0).div_(value.add_(_TINY))
    return torch.mul(x, scale).add_(scale.mul_(_TINY))


@register(
    "saturate",
    family="digital",
    set="extra",
    cifar=((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    imagenet=((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
)
def saturate(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """HSV saturation S' = min(a·S + b, 1).

    At fixed hue and value V the distance of a channel from V is proportional to S = (V − min)/V, so that
    x' = V − (V − x)·S'/S. A grey pixel has hue 0, which is red: where S' > 0 its green and blue channels
    fall to V·(1 − S'), and a tiny number added to their distance does just that.
    """
    gain, offset = c
    value = torch.maximum(torch.maximum(x[:, 0], x[:, 1]), x[:, 2]).unsqueeze_(1)
    spread = value - torch.minimum(torch.minimum(x[:, 0], x[:, 1]), x[:, 2]).unsqueeze_(1)
    ratio = torch.minimum(gain * spread + offset * value, value).div_(spread.add_(_TINY))
    distance = value - x
    distance[:, 1:].add_(_TINY)
    return torch.sub(value, distance.mul_(ratio))


@register(
    "contrast",
    family="digital",
    set="standard",
    cifar=(0.75, 0.5, 0.4, 0.3, 0.15),
    imagenet=(0.4, 0.3, 0.2, 0.1, 0.05),
    works_on="uint8",
)
def contrast(x: Tensor, c: float, draws: Draws) -> Tensor:
    """(x − m)·c + m with the mean m of each image and channel.

    The grey levels are added up as whole numbers, row by row in float32 and then in float64, where no sum is
    ever rounded: the mean cannot depend on the order in which a device adds.
    """
    levels = x.to(torch.float32)
    total = levels.sum(dim=3).to(torch.float64).sum(dim=2)
    rest = total.mul_((1.0 - c) / (x.shape[2] * x.shape[3])).to(torch.float32)
    return to_grey(levels.mul_(c).add_(rest[:, :, None, None]))


class Boxes(NamedTuple):
    """Pillow's box filter along an axis: as a matrix, as a weighted sum of pixels, and the way back up."""

    operator: Operator
    taps: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    back: Tensor


@lru_cache(maxsize=64)
def _boxes(size: int, fewer: int, device: torch.device) -> Boxes:
    """From `size` to `fewer` pixels: each is the mean of the pixels whose centre lies in its box.

    Back up, each pixel lies in the box of exactly one of the fewer.
    """
    scale = size / fewer
    first = [int(box * scale + 0.5) for box in range(fewer)]
    last = [min(int((box + 1) * scale + 0.5), size) for box in range(fewer)]
    matrix = torch.zeros(fewer, size, dtype=torch.float64)
    for box in range(fewer):
        matrix[box, first[box] : last[box]] = 1.0 / (last[box] - first[box])
    most = max(end - start for start, end in zip(first, last, strict=True))
    taps = [(torch.tensor(first) + k).clamp_(max=size - 1) for k in range(most)]
    inside = [torch.tensor(first) + k < torch.tensor(last) for k in range(most)]
    weights = [matrix.gather(1, tap[:, None]) * keep[:, None] for tap, keep in zip(taps, inside, strict=True)]
    back = [min(int((pixel + 0.5) / scale), fewer - 1) for pixel in range(size)]
    return Boxes(
        Operator.of(matrix, device),
        tuple(tap.to(device) for tap in taps),
        tuple(weight.to(device, torch.float32) for weight in weights),
        torch.tensor(back, device=device),
    )


@register(
    "pixelate",
    family="digital",
    set="standard",
    cifar=(0.95, 0.9, 0.85, 0.75, 0.65),
    imagenet=(0.6, 0.5, 0.4, 0.3, 0.25),
    works_on="uint8",
    smallest=4,
)
def pixelate(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Box filter down to ⌊size·c⌋ pixels and up again, rounded after each axis as Pillow does."""
    n, channels, height, width = x.shape
    across = _boxes(width, int(width * c), x.device)
    down = _boxes(height, int(height * c), x.device)
    levels = x.to(torch.float32).view(-1, width)
    narrow = levels.new_empty(len(levels), int(width * c))
    for left, right, first, last in across.operator.blocks:
        block = across.operator.matrix[left:right, first:last]
        torch.mm(levels[:, first:last], block.T, out=narrow[:, left:right])
    narrow = narrow.add_(0.5 + _SLACK).floor_().view(n * channels, height, -1)
    small = narrow.index_select(1, down.taps[0]).mul_(down.weights[0])
    for tap, weight in zip(down.taps[1:], down.weights[1:], strict=True):
        small.addcmul_(narrow.index_select(1, tap), weight)
    coarse = small.add_(0.5 + _SLACK).to(torch.int32).to(torch.uint8)
    return coarse.index_select(2, across.back).index_select(1, down.back).view(x.shape)


@register(
    "jpeg_compression",
    family="digital",
    set="standard",
    cifar=(80, 65, 58, 50, 40),
    imagenet=(25, 18, 15, 10, 7),
    works_on="uint8",
)
def jpeg_compression(x: Tensor, c: int, draws: Draws) -> Tensor:
    """JPEG at quality c and back: OpenCV writes and reads the same coefficients as Pillow, at less cost."""
    batch = np.empty((len(x), *x.shape[2:], 3), dtype=np.uint8)
    write_planes(x.cpu(), batch, reverse=True)

    def squeeze(image: npt.NDArray[np.uint8]) -> None:
        coded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, c])[1]
        np.copyto(image, np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8))

    map_threads(squeeze, list(batch))
    return planes(batch, reverse=True).to(x.device)
