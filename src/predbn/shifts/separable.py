"""Linear maps of an image that act on its rows and on its columns: Y = R·X·Cᵀ.

Gaussian blur and centre zoom are of this kind. As matrices they include the whole treatment of the border, so that a
batch takes one matrix product per axis on any device. The entries of both matrices are near a diagonal; on a CPU the
product is therefore computed in blocks of output rows, each with the few input rows that it reads.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

_BLOCK_ROWS = 32

SMALL_SIDE = 64
"""Up to this side a batch is best processed as a whole; larger images fill the cache one by one."""


class Operator(NamedTuple):
    """A matrix [out, in] along one axis, and the blocks (top, bottom, left, right) outside of which it is zero."""

    matrix: Tensor
    blocks: tuple[tuple[int, int, int, int], ...]

    @staticmethod
    def from_matrix(matrix: Tensor, device: torch.device) -> Operator:
        """Blocks of 32 rows on a CPU; one block on a GPU, where starting a product costs more."""
        rows, columns = matrix.shape
        if device.type != "cpu":
            return Operator(matrix.to(device, torch.float32), ((0, rows, 0, columns),))
        blocks = []
        for start in range(0, rows, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, rows)
            read = matrix[start:stop].any(dim=0).nonzero()
            blocks.append((start, stop, int(read[0]), int(read[-1]) + 1))
        return Operator(matrix.to(torch.float32), tuple(blocks))


def gaussian_weights(sigma: float, *, truncate: float = 4) -> Tensor:
    """w_k ∝ exp(−k²/2σ²), |k| ≤ ⌊truncate·σ + ½⌋, in float64."""
    radius = int(truncate * sigma + 0.5)
    weights = torch.exp(torch.arange(-radius, radius + 1).double().square() / (-2 * sigma**2))
    return weights / weights.sum()


def tap_positions(size: int, weights: Tensor) -> Tensor:
    """[size, taps]: the positions i + k that a centred filter reads; some of them are outside of the image."""
    radius = len(weights) // 2
    return torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)


def filter_operator(weights: Tensor, read: Tensor, device: torch.device) -> Operator:
    """The filter Σ_k w_k·x(read[i, k]), where `read` are the positions after the treatment of the border."""
    size = len(read)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return Operator.from_matrix(matrix.scatter_add_(1, read, weights.double().expand(size, -1)), device)


@lru_cache(maxsize=64)
def gaussian_operator(size: int, sigma: float, device: torch.device) -> Operator:
    """Gaussian filter along an axis; outside of the image the edge value is repeated."""
    weights = gaussian_weights(sigma)
    return filter_operator(weights, tap_positions(size, weights).clamp_(0, size - 1), device)


def mirrored_operator(size: int, weights: Tensor, device: torch.device) -> Operator:
    """The filter Σ_k w_k·x(i + k) along an axis; the image is mirrored about the centre of its edge pixels."""
    period = max(2 * (size - 1), 1)
    read = tap_positions(size, weights).remainder_(period)
    return filter_operator(weights, torch.minimum(read, period - read).clamp_(max=size - 1), device)


@lru_cache(maxsize=256)
def zoom_operator(size: int, zoom: float, device: torch.device, *, crop: bool = True) -> Operator:
    """Centre zoom along an axis that keeps its size.

    The middle ⌈size/z⌉ pixels are stretched linearly to round(⌈size/z⌉·z), which maps the first pixel to the first and
    the last to the last, and the middle `size` of them are kept. With crop=False the input of the operator is only
    these middle pixels instead of the whole axis.
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
    return Operator.from_matrix(matrix, device)


def apply_separable(x: Tensor, rows: Operator, columns: Operator, out: Tensor | None = None) -> Tensor:
    """R·X·Cᵀ for each plane of x [..., H, W]; with `out`, add it to `out`."""
    height, width = rows.matrix.shape[0], columns.matrix.shape[0]
    planes = x.reshape(-1, *x.shape[-2:])
    half = planes.new_empty(len(planes), height, planes.shape[-1])
    for top, bottom, first, last in rows.blocks:
        block = rows.matrix[top:bottom, first:last].expand(len(planes), -1, -1)
        torch.bmm(block, planes[:, first:last], out=half[:, top:bottom])
    result = half.new_empty(*x.shape[:-2], height, width) if out is None else out
    source, target = half.view(-1, half.shape[-1]), result.view(-1, width)
    for left, right, first, last in columns.blocks:
        block = columns.matrix[left:right, first:last].T
        target[:, left:right].addmm_(source[:, first:last], block, beta=0.0 if out is None else 1.0)
    return result


def gaussian_filter(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of each plane of x [..., H, W]."""
    height, width = x.shape[-2:]
    rows = gaussian_operator(height, sigma, x.device)
    return apply_separable(x, rows, gaussian_operator(width, sigma, x.device))
