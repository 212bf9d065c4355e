"""Linear maps of an image that act on its rows and its columns one after the other: Y = R·X·Cᵀ.

Gaussian blur and centre zoom are of this kind. Writing them as matrices puts the whole treatment of the
border into the matrix, so that a batch takes one matrix product an axis on any device. Both matrices have
their entries near a diagonal; on a CPU the product is therefore taken in blocks of output rows, each with
the few input rows that it reads.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import cv2
import torch
from torch import Tensor

__all__ = [
    "SMALL_SIDE",
    "Operator",
    "add_sandwich",
    "gaussian",
    "gaussian_operator",
    "mirrored_operator",
    "sandwich",
    "zoom_operator",
]

_BLOCK = 32
_SHORT = 17

SMALL_SIDE = 64
"""Up to this side a batch is best worked on as a whole; larger pictures fill a cache one by one."""


class Operator(NamedTuple):
    """A matrix [out, in] and the blocks (top, bottom, left, right) outside which it is zero."""

    matrix: Tensor
    blocks: tuple[tuple[int, int, int, int], ...]

    @staticmethod
    def of(matrix: Tensor, device: torch.device) -> Operator:
        """Blocks of `_BLOCK` rows on a CPU; one block elsewhere, where starting a product costs more."""
        rows, columns = matrix.shape
        if device.type != "cpu":
            return Operator(matrix.to(device, torch.float32), ((0, rows, 0, columns),))
        blocks = []
        for start in range(0, rows, _BLOCK):
            stop = min(start + _BLOCK, rows)
            read = matrix[start:stop].any(dim=0).nonzero()
            blocks.append((start, stop, int(read[0]), int(read[-1]) + 1))
        return Operator(matrix.to(torch.float32), tuple(blocks))


def gaussian_weights(sigma: float) -> Tensor:
    """w_k ∝ exp(−k²/2σ²), |k| ≤ ⌊4σ + ½⌋, in float64."""
    radius = int(4 * sigma + 0.5)
    weights = torch.exp(torch.arange(-radius, radius + 1).double().square() / (-2 * sigma**2))
    return weights / weights.sum()


@lru_cache(maxsize=64)
def gaussian_operator(size: int, sigma: float, device: torch.device) -> Operator:
    """Gaussian filter along an axis, the edge value repeated outside."""
    weights = gaussian_weights(sigma)
    radius = len(weights) // 2
    read = (torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)).clamp_(0, size - 1)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return Operator.of(matrix.scatter_add_(1, read, weights.expand(size, -1)), device)


def mirrored_operator(size: int, weights: Tensor, device: torch.device) -> Operator:
    """A filter along an axis, Σ_k w_k·x(i + k), the image mirrored about the centre of its edge pixels."""
    radius = len(weights) // 2
    period = max(2 * (size - 1), 1)
    read = (torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)).remainder_(period)
    read = torch.minimum(read, period - read).clamp_(max=size - 1)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return Operator.of(matrix.scatter_add_(1, read, weights.double().expand(size, -1)), device)


@lru_cache(maxsize=256)
def zoom_operator(size: int, zoom: float, device: torch.device, *, crop: bool = True) -> Operator:
    """Centre zoom along an axis, of the same size as before.

    The middle ⌈size/z⌉ pixels are stretched linearly to round(⌈size/z⌉·z), first pixel on first and last on
    last, and trimmed to the middle `size`. With crop=False the operator takes those middle pixels alone.
    """
    read = math.ceil(size / zoom)
    first = (size - read) // 2
    stretched = round(read * zoom)
    trim = (stretched - size) // 2
    position = torch.arange(trim, trim + size, dtype=torch.float64) * ((read - 1) / max(stretched - 1, 1))
    lower = position.floor().clamp_(0, max(read - 2, 0))
    weight = position - lower
    taps = torch.stack([lower, (lower + 1).clamp_(max=read - 1)], 1).long()
    matrix = torch.zeros(size, read, dtype=torch.float64)
    matrix.scatter_add_(1, taps, torch.stack([1 - weight, weight], 1))
    if crop:
        matrix = torch.nn.functional.pad(matrix, (first, size - read - first))
    return Operator.of(matrix, device)


def sandwich(x: Tensor, rows: Operator, columns: Operator, out: Tensor | None = None) -> Tensor:
    """R·X·Cᵀ for each plane of x [..., H, W]; added to `out` where one is given."""
    height, width = rows.matrix.shape[0], columns.matrix.shape[0]
    planes = x.reshape(-1, *x.shape[-2:])
    half = planes.new_empty(len(planes), height, planes.shape[-1])
    for top, bottom, first, last in rows.blocks:
        block = rows.matrix[top:bottom, first:last].expand(len(planes), -1, -1)
        torch.bmm(block, planes[:, first:last], out=half[:, top:bottom])
    keep = 0.0 if out is None else 1.0
    result = half.new_empty(*x.shape[:-2], height, width) if out is None else out
    _along_columns(half, columns, result, keep)
    return result


def add_sandwich(x: Tensor, rows: Operator, columns: Operator, total: Tensor) -> None:
    """Add R·X·Cᵀ to `total`, for planes with their rows first, [H, planes, W]: then both products are
    single large ones, which pays where many are taken of the same planes."""
    height, planes, width = x.shape
    half = x.new_empty(height, planes * width)
    for top, bottom, first, last in rows.blocks:
        torch.mm(rows.matrix[top:bottom, first:last], x.view(height, -1)[first:last], out=half[top:bottom])
    _along_columns(half.view(-1, width), columns, total, 1.0)


def _along_columns(half: Tensor, columns: Operator, result: Tensor, keep: float) -> None:
    """result ← keep·result + H·Cᵀ, for H of any shape [..., W]."""
    source, target = half.view(-1, half.shape[-1]), result.view(-1, result.shape[-1])
    for left, right, first, last in columns.blocks:
        block = columns.matrix[left:right, first:last].T
        target[:, left:right].addmm_(source[:, first:last], block, beta=keep)


def gaussian(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of each plane of x [..., H, W]. On a CPU, large planes under a short filter are left to
    OpenCV, which goes over them tap by tap at less cost than a product."""
    height, width = x.shape[-2:]
    weights = gaussian_weights(sigma)
    if x.is_cpu and min(height, width) > SMALL_SIDE and len(weights) <= _SHORT:
        return _by_taps(x, weights)
    rows = gaussian_operator(height, sigma, x.device)
    return sandwich(x, rows, gaussian_operator(width, sigma, x.device))


def _by_taps(x: Tensor, weights: Tensor) -> Tensor:
    """A filter along both axes of each plane of x, the edge value repeated outside."""
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    taps = weights.numpy()
    planes = x.contiguous().view(-1, *x.shape[-2:]).numpy()
    for plane, target in zip(planes, result.view(-1, *x.shape[-2:]).numpy(), strict=True):
        cv2.sepFilter2D(plane, cv2.CV_32F, taps, taps, target, borderType=cv2.BORDER_REPLICATE)
    return result
