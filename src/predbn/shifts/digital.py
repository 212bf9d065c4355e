"""What processing does to an image: light and colour, coarse pixels, compression."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws, map_threads, threads_for

from .grey import to_grey
from .registry import register
from .separable import SMALL_SIDE

__all__ = ["brightness", "contrast", "jpeg_compression", "pixelate", "saturate"]

_TINY = 1e-6


@register(
    "brightness",
    family="digital",
    set="standard",
    cifar=(0.05, 0.1, 0.15, 0.2, 0.3),
    imagenet=(0.1, 0.2, 0.3, 0.4, 0.5),
    works_on="uint8",
)
def brightness(x: Tensor, c: float, draws: Draws) -> Tensor:
    """HSV value V raised by c, up to 1.

    At fixed hue and saturation the colour is proportional to V = max(R, G, B), so the conversion cancels:
    x' = x·V'/V. Black has no hue and becomes the grey V'; a tiny number added to x and V does just that.
    """
    levels = x.to(torch.float32)
    value = torch.maximum(torch.maximum(levels[:, 0], levels[:, 1]), levels[:, 2]).unsqueeze_(1)
    scale = (value + 255.0 * c).clamp_(max=255.0).div_(value.add_(_TINY))
    return to_grey(levels.mul_(scale).add_(scale.mul_(_TINY)))


@register(
    "saturate",
    family="digital",
    set="extra",
    cifar=((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    imagenet=((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
    works_on="uint8",
)
def saturate(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """HSV saturation S' = min(a·S + b, 1).

    At fixed hue and value V the distance of a channel from V is proportional to S = (V − min)/V, so that
    x' = V − (V − x)·S'/S. A grey pixel has hue 0, which is red: where S' > 0 its green and blue channels
    fall to V·(1 − S'), and a tiny number added to their distance does just that.
    """
    gain, offset = c
    levels = x.to(torch.float32)
    value = torch.maximum(torch.maximum(levels[:, 0], levels[:, 1]), levels[:, 2]).unsqueeze_(1)
    spread = value - torch.minimum(torch.minimum(levels[:, 0], levels[:, 1]), levels[:, 2]).unsqueeze_(1)
    ratio = torch.minimum(gain * spread + offset * value, value).div_(spread.add_(_TINY))
    distance = torch.sub(value, levels, out=levels)
    distance[:, 1:].add_(_TINY)
    return to_grey(torch.sub(value, distance.mul_(ratio), out=distance))


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
    """Pillow's box filter along an axis.

    `groups` has, for each number of pixels that a box can hold, where the first, second, … pixels of such
    boxes are; `order` puts the boxes of all groups into their sequence; `back` says which box each pixel
    lies in.
    """

    groups: tuple[tuple[Tensor, ...], ...]
    order: Tensor
    back: Tensor


def _edges(size: int, fewer: int) -> npt.NDArray[np.int64]:
    """Where the boxes begin, and where the last one ends."""
    return np.minimum((np.arange(fewer + 1) * (size / fewer) + 0.5).astype(np.int64), size)


@lru_cache(maxsize=64)
def _boxes(size: int, fewer: int, device: torch.device) -> Boxes:
    """From `size` to `fewer` pixels: each is the mean of the pixels whose centre lies in its box."""
    scale = size / fewer
    edges = torch.from_numpy(_edges(size, fewer))
    first, held = edges[:-1], edges.diff()
    groups = []
    for count in sorted(set(held.tolist())):
        mine = first[held == count]
        groups.append(tuple((mine + k).to(device) for k in range(count)))
    order = held.argsort(stable=True).argsort().to(device)
    back = [min(int((pixel + 0.5) / scale), fewer - 1) for pixel in range(size)]
    return Boxes(tuple(groups), order, torch.tensor(back, device=device))


def _shrink(rows: Tensor, boxes: Boxes) -> Tensor:
    """Box means along the last axis but one of uint8 [..., size, M], rounded half up.

    The mean of n whole numbers with sum s rounds to ⌊(s + ⌊n/2⌋)/n⌋, and the division is a multiplication
    by ⌈2¹⁶/n⌉ and a shift, exact for sums this small.
    """
    means = []
    for taps in boxes.groups:
        total = rows.index_select(-2, taps[0]).to(torch.int16)
        for tap in taps[1:]:
            total.add_(rows.index_select(-2, tap).to(torch.int16))
        held = len(taps)
        total.add_(held // 2)
        if held in (1, 2, 4):
            mean = total.bitwise_right_shift_(held // 2)
        else:
            mean = total.to(torch.int32).mul_(-(-65536 // held)).bitwise_right_shift_(16)
        means.append(mean.to(torch.uint8))
    return torch.cat(means, dim=-2).index_select(-2, boxes.order)


def _turn(x: Tensor) -> Tensor:
    """The transpose of a matrix of pixels [A, B, 3], laid out anew."""
    if x.device.type != "cpu":
        return x.transpose(0, 1).contiguous()
    return torch.from_numpy(cv2.transpose(x.numpy()))


def _pixelate_by_sums(x: Tensor, c: float) -> Tensor:
    """The same for large pictures, from a table of sums: a box is the difference of its four corners. It is
    rounded once rather than after each axis, so a pixel may be off by one grey level."""
    height, width = x.shape[1:3]
    rows, columns = _edges(height, int(height * c)), _edges(width, int(width * c))
    share = 1.0 / np.outer(np.diff(rows), np.diff(columns)).astype(np.float32)[..., None]
    down = _boxes(height, int(height * c), x.device).back.numpy()
    across = _boxes(width, int(width * c), x.device).back.numpy()
    result = torch.empty_like(x)
    table = np.empty((height + 1, width + 1, 3), np.int32)
    sums = np.empty((len(x), len(rows), width + 1, 3), np.int32)
    for image, wanted in zip(x.numpy(), sums, strict=True):
        cv2.integral(image, table).take(rows, axis=0, out=wanted, mode="clip")
    means = np.diff(np.diff(sums.take(columns, axis=2), axis=1), axis=2).astype(np.float32)
    means *= share
    means += 0.5
    means.astype(np.uint8).take(across, axis=2).take(down, axis=1, out=result.numpy(), mode="clip")
    return result


@register(
    "pixelate",
    family="digital",
    set="standard",
    cifar=(0.95, 0.9, 0.85, 0.75, 0.65),
    imagenet=(0.6, 0.5, 0.4, 0.3, 0.25),
    works_on="nhwc",
    smallest=4,
    chunk=1 << 21,
)
def pixelate(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Box filter down to ⌊size·c⌋ pixels and up again, rounded after each axis as Pillow does.

    All rows of the batch on top of each other are one tall matrix. Both ways along it go by whole rows of its
    transpose, which are copied at the speed of memory; picking pixels out of rows would not be. Large
    pictures no longer fit the cache this way, and a CPU has a faster one.
    """
    n, height, width, _ = x.shape
    if x.device.type == "cpu" and min(height, width) > SMALL_SIDE:
        return _pixelate_by_sums(x, c)
    across = _boxes(width, int(width * c), x.device)
    down = _boxes(height, int(height * c), x.device)
    turned = _turn(x.view(n * height, width, 3))
    narrow = _turn(_shrink(turned.view(width, -1), across).view(-1, n * height, 3))
    small = _shrink(narrow.view(n, height, -1), down)
    tall = small.index_select(1, down.back).view(n * height, -1, 3)
    return _turn(_turn(tall).index_select(0, across.back)).view(x.shape)


@register(
    "jpeg_compression",
    family="digital",
    set="standard",
    cifar=(80, 65, 58, 50, 40),
    imagenet=(25, 18, 15, 10, 7),
    works_on="nhwc",
)
def jpeg_compression(x: Tensor, c: int, draws: Draws) -> Tensor:
    """JPEG at quality c and back: OpenCV writes and reads the same coefficients as Pillow, at less cost."""
    batch = x.cpu().numpy()
    result = np.empty_like(batch)

    def squeeze(i: int) -> None:
        turned = cv2.cvtColor(batch[i], cv2.COLOR_RGB2BGR)
        coded = cv2.imencode(".jpg", turned, [cv2.IMWRITE_JPEG_QUALITY, c])[1]
        read = cv2.imdecode(coded, cv2.IMREAD_COLOR)
        assert read is not None
        cv2.cvtColor(read, cv2.COLOR_BGR2RGB, dst=result[i])

    map_threads(squeeze, range(len(batch)), most=threads_for(*batch.shape[1:3]))
    return torch.from_numpy(result).to(x.device)
