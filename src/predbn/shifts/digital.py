"""What processing does to an image: light and colour, coarse pixels, compression."""

from __future__ import annotations

from functools import lru_cache

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


@lru_cache(maxsize=64)
def _coarse(size: int, fewer: int, device: torch.device) -> tuple[Operator, Tensor]:
    """Pillow's box filter from `size` to `fewer` pixels, and where each pixel reads on the way back.

    A coarse pixel is the mean of the pixels whose centre lies in its box; back up, each pixel lies in the box
    of exactly one coarse pixel.
    """
    scale = size / fewer
    matrix = torch.zeros(fewer, size, dtype=torch.float64)
    for row in range(fewer):
        first, last = int(row * scale + 0.5), min(int((row + 1) * scale + 0.5), size)
        matrix[row, first:last] = 1.0 / (last - first)
    back = [min(int((column + 0.5) / scale), fewer - 1) for column in range(size)]
    return Operator.of(matrix, device), torch.tensor(back, device=device)


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
    few_rows, few_columns = int(height * c), int(width * c)
    across, columns = _coarse(width, few_columns, x.device)
    down, rows = _coarse(height, few_rows, x.device)
    levels = x.to(torch.float32).view(-1, width)
    narrow = levels.new_empty(n * channels * height, few_columns)
    for left, right, first, last in across.blocks:
        torch.mm(levels[:, first:last], across.matrix[left:right, first:last].T, out=narrow[:, left:right])
    narrow = narrow.add_(0.5).floor_().view(n * channels, height, few_columns)
    small = levels.new_empty(n * channels, few_rows, few_columns)
    for top, bottom, first, last in down.blocks:
        block = down.matrix[top:bottom, first:last].expand(n * channels, -1, -1)
        torch.bmm(block, narrow[:, first:last], out=small[:, top:bottom])
    coarse = small.add_(0.5).to(torch.int32).to(torch.uint8)
    return coarse.index_select(2, columns).index_select(1, rows).view(n, channels, height, width)


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
    write_planes(x.cpu().flip(1), batch)

    def squeeze(image: npt.NDArray[np.uint8]) -> None:
        coded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, c])[1]
        np.copyto(image, np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8))

    map_threads(squeeze, list(batch))
    return planes(batch).flip(1).to(x.device)
