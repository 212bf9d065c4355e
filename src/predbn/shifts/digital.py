"""Brightness, saturation, contrast, pixelation and JPEG compression."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor

from predbn.common import Draws, map_threads

from .pixels import opencv_threads, to_uint8
from .registry import register

_TINY = 1e-6
_OPENCV_CHANNELS = 4


@register(
    "brightness",
    family="digital",
    cifar=(0.05, 0.1, 0.15, 0.2, 0.3),
    imagenet=(0.1, 0.2, 0.3, 0.4, 0.5),
    works_on="uint8",
    mixes_channels=True,
)
def brightness(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Raise the HSV value V by c, up to 1.

    At fixed hue and saturation the colour is proportional to V = max(R, G, B), so the conversion cancels:
    x' = x·V'/V. Black has no hue and becomes the grey V'; adding a tiny number to x and V has this effect.
    """
    levels = x.to(torch.float32)
    value = torch.maximum(torch.maximum(levels[:, 0], levels[:, 1]), levels[:, 2]).unsqueeze_(1)
    scale = (value + 255.0 * c).clamp_(max=255.0).div_(value.add_(_TINY))
    return to_uint8(levels.mul_(scale).add_(scale.mul_(_TINY)))


@register(
    "saturate",
    family="digital",
    cifar=((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    imagenet=((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
    works_on="uint8",
    mixes_channels=True,
)
def saturate(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """Change the HSV saturation to S' = min(a·S + b, 1).

    At fixed hue and value V the distance of a channel from V is proportional to S = (V − min)/V, so that
    x' = V − (V − x)·S'/S. A grey pixel has hue 0, which is red: if S' > 0, its green and blue channels become
    V·(1 − S'); adding a tiny number to their distance has this effect.
    """
    gain, offset = c
    levels = x.to(torch.float32)
    value = torch.maximum(torch.maximum(levels[:, 0], levels[:, 1]), levels[:, 2]).unsqueeze_(1)
    spread = value - torch.minimum(torch.minimum(levels[:, 0], levels[:, 1]), levels[:, 2]).unsqueeze_(1)
    ratio = torch.minimum(gain * spread + offset * value, value).div_(spread.add_(_TINY))
    distance = torch.sub(value, levels, out=levels)
    distance[:, 1:].add_(_TINY)
    return to_uint8(torch.sub(value, distance.mul_(ratio), out=distance))


@register(
    "contrast",
    family="digital",
    cifar=(0.75, 0.5, 0.4, 0.3, 0.15),
    imagenet=(0.4, 0.3, 0.2, 0.1, 0.05),
    works_on="uint8",
)
def contrast(x: Tensor, c: float, draws: Draws) -> Tensor:
    """(x − m)·c + m with the mean m of each image and channel.

    The grey levels are integers, added row by row in float32 and then in float64, where no sum is ever rounded: the
    mean cannot depend on the order in which a device adds.
    """
    levels = x.to(torch.float32)
    total = levels.sum(dim=3).to(torch.float64).sum(dim=2)
    rest = total.mul_((1.0 - c) / (x.shape[2] * x.shape[3])).to(torch.float32)
    return to_uint8(levels.mul_(c).add_(rest[:, :, None, None]))


class Boxes(NamedTuple):
    """Pillow's box filter along an axis.

    `groups` has one entry for each box size that occurs: the positions of the first, second, … pixels of all boxes of
    that size. `order` brings the boxes of all groups into their sequence along the axis. `box_of` is the box that each
    pixel is in.
    """

    groups: tuple[tuple[Tensor, ...], ...]
    order: Tensor
    box_of: Tensor


@lru_cache(maxsize=64)
def _boxes(size: int, count: int, device: torch.device) -> Boxes:
    """From `size` pixels to `count` boxes: each is the mean of the pixels whose centre is in the box."""
    scale = size / count
    edges = (torch.arange(count + 1, dtype=torch.float64) * scale + 0.5).long().clamp_(max=size)
    first, lengths = edges[:-1], edges.diff()
    groups = []
    for length in sorted(set(lengths.tolist())):
        starts = first[lengths == length]
        groups.append(tuple((starts + k).to(device) for k in range(length)))
    order = lengths.argsort(stable=True).argsort().to(device)
    box_of = [min(int((pixel + 0.5) / scale), count - 1) for pixel in range(size)]
    return Boxes(tuple(groups), order, torch.tensor(box_of, device=device))


def _shrink(rows: Tensor, boxes: Boxes) -> Tensor:
    """Box means along the second to last axis of uint8 [..., size, M], rounded half up.

    The mean of n integers with sum s rounds to ⌊(s + ⌊n/2⌋)/n⌋. The division is a multiplication by ⌈2¹⁶/n⌉ and a
    shift, which is exact for sums this small.
    """
    means = []
    for taps in boxes.groups:
        total = rows.index_select(-2, taps[0]).to(torch.int16)
        for tap in taps[1:]:
            total.add_(rows.index_select(-2, tap).to(torch.int16))
        length = len(taps)
        total.add_(length // 2)
        if length in (1, 2, 4):
            mean = total.bitwise_right_shift_(length // 2)
        else:
            mean = total.to(torch.int32).mul_(-(-65536 // length)).bitwise_right_shift_(16)
        means.append(mean.to(torch.uint8))
    return torch.cat(means, dim=-2).index_select(-2, boxes.order)


def _transpose(x: Tensor) -> Tensor:
    """The transpose of a matrix of pixels [A, B, C], contiguous in memory; OpenCV drops a single channel."""
    if x.device.type != "cpu" or x.shape[2:].numel() > _OPENCV_CHANNELS:
        return x.transpose(0, 1).contiguous()
    return torch.from_numpy(cv2.transpose(x.numpy()))


@register(
    "pixelate",
    family="digital",
    cifar=(0.95, 0.9, 0.85, 0.75, 0.65),
    imagenet=(0.6, 0.5, 0.4, 0.3, 0.25),
    works_on="nhwc",
    min_side=4,
    chunk=1 << 21,
)
def pixelate(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Box filter down to ⌊size·c⌋ pixels and up again, rounded after each axis as Pillow does.

    All rows of the batch on top of each other are one tall matrix. Working along its rows is done on its transpose,
    where whole rows are copied at the speed of memory; picking single pixels out of rows would be slower.
    """
    n, height, width, channels = x.shape
    across = _boxes(width, int(width * c), x.device)
    down = _boxes(height, int(height * c), x.device)
    transposed = _transpose(x.view(n * height, width, channels))
    narrow = _transpose(_shrink(transposed.view(width, -1), across).view(-1, n * height, channels))
    small = _shrink(narrow.view(n, height, -1), down)
    tall = small.index_select(1, down.box_of).view(n * height, -1, channels)
    return _transpose(_transpose(tall).index_select(0, across.box_of)).view(x.shape)


@register(
    "jpeg_compression",
    family="digital",
    cifar=(80, 65, 58, 50, 40),
    imagenet=(25, 18, 15, 10, 7),
    works_on="nhwc",
    mixes_channels=True,
)
def jpeg_compression(x: Tensor, c: int, draws: Draws) -> Tensor:
    """JPEG of quality c: OpenCV writes and reads the same coefficients as Pillow, and is faster."""
    batch = x.cpu().numpy()
    result = np.empty_like(batch)

    def compress(i: int) -> None:
        bgr = cv2.cvtColor(batch[i], cv2.COLOR_RGB2BGR)
        encoded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, c])[1]
        decoded = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
        assert decoded is not None
        cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB, dst=result[i])

    map_threads(compress, range(len(batch)), max_threads=opencv_threads(*batch.shape[1:3]))
    return torch.from_numpy(result).to(x.device)
