"""The elastic transform: a random affine map of the whole image, then a smooth random displacement."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from predbn.common import Draws

from .registry import register
from .separable import Operator, apply_separable, filter_operator, gaussian_weights, tap_positions


def _severities(side: int, *parts: tuple[float, float, float]) -> tuple[tuple[float, float, float], ...]:
    """(amplitude, smoothness, affine shift) in pixels of an image with that side."""
    return tuple((side * a, side * s, side * r) for a, s, r in parts)


@lru_cache(maxsize=32)
def _smoother(size: int, sigma: float, device: torch.device) -> Operator:
    """Gaussian filter along an axis, truncated at 3σ; the image is mirrored at the outer edges of its edge pixels."""
    weights = gaussian_weights(sigma, truncate=3)
    read = tap_positions(size, weights) % (2 * size)
    return filter_operator(weights, torch.minimum(read, 2 * size - 1 - read), device)


def _affine(height: int, width: int, reach: float, draws: Draws) -> Tensor:
    """[N, 2, 3]: the map from a pixel (x, y, 1) of the result to the position in the image that it reads.

    Three corners p of a square around the centre go to q = p + U(−reach, reach). With the edges
    E = (q₁ − q₀, q₂ − q₀) and F = (p₁ − p₀, p₂ − p₀) as columns, the inverse map is
    p = F·E⁻¹·(q − q₀) + p₀. As in the benchmark, the centre is (height//2, width//2) in (x, y) order.
    These are only six numbers per image: numpy on the CPU is faster than a GPU.
    """
    shift = (draws.uniform(3, 2).cpu().numpy().astype(np.float64) * 2.0 - 1.0) * reach
    corners = np.array([[1, 1], [1, -1], [-1, -1]]) * (min(height, width) // 3)
    before = np.array([height // 2, width // 2], dtype=np.float64) + corners
    after = before + shift
    edges = (after[:, 1:] - after[:, :1]).swapaxes(1, 2)
    linear = (before[1:] - before[:1]).T @ np.linalg.inv(edges)
    offset = before[0] - (linear * after[:, None, 0]).sum(axis=2)
    matrix = np.concatenate([linear, offset[:, :, None]], axis=2)
    return torch.from_numpy(matrix).to(draws.device, torch.float32)


@lru_cache(maxsize=32)
def _axes(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pixel coordinates along x [1, 1, 1, W] and y [1, 1, H, 1]."""
    x = torch.arange(width, dtype=torch.float32, device=device)
    y = torch.arange(height, dtype=torch.float32, device=device)
    return x.view(1, 1, 1, -1), y.view(1, 1, -1, 1)


def _sample(
    x: Tensor, position: Tensor, step: tuple[float, float], start: tuple[float, float], *, align_corners: bool
) -> Tensor:
    """x at the positions [N, 2, H, W] (x, y) in pixels, interpolated linearly and mirrored outside of the image.

    grid_sample takes a position as position·step + start. With align_corners it mirrors about the centres of the edge
    pixels (OpenCV's reflect-101), without it about their outer edges (scipy's reflect).
    """
    for axis in range(2):
        position[:, axis].mul_(step[axis]).add_(start[axis])
    grid = position.permute(0, 2, 3, 1)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=align_corners)


@register(
    "elastic_transform",
    family="digital",
    cifar=_severities(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    imagenet=_severities(
        244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
    ),
    min_side=16,
)
def elastic_transform(x: Tensor, c: tuple[float, float, float], draws: Draws) -> Tensor:
    """An affine map mirrored about the edge pixels, then x(p + d(p)) mirrored about the edges of the image.

    Both interpolate linearly. The displacement is d = amplitude·Gaussian(U(−1, 1)) for each axis.
    """
    height, width = x.shape[2:]
    amplitude, sigma, reach = c
    px, py = _axes(height, width, x.device)
    m = _affine(height, width, reach, draws)[..., None, None]
    position = torch.add(m[:, :, 0] * px, m[:, :, 1] * py + m[:, :, 2])
    x = _sample(x, position, (2.0 / (width - 1), 2.0 / (height - 1)), (-1.0, -1.0), align_corners=True)
    if not amplitude:
        return x
    noise = draws.uniform(2, height, width).mul_(2.0).sub_(1.0)
    position = apply_separable(noise, _smoother(height, sigma, x.device), _smoother(width, sigma, x.device))
    position.mul_(amplitude)
    position[:, 0] += px[:, 0]
    position[:, 1] += py[:, 0]
    steps = (2.0 / width, 2.0 / height)
    return _sample(x, position, steps, (1.0 / width - 1.0, 1.0 / height - 1.0), align_corners=False)
