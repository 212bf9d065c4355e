"""Plasma fractals by the diamond-square rule, a batch at a time, for fog.

One level turns n×n points into 2n×2n. The plane wraps around, so every new point has four neighbours:

    a centre is the mean of the four corners around it,
    the middle of an edge is the mean of its two corners and of the two centres beside it,

each plus an offset wibble·U(−wibble, wibble). wibble is 100 at the first level and divided by `decay` at each
one after it, so that the offsets shrink with the square of the decay.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import Draws

__all__ = ["plasma"]


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """[N, side, side] fractals, each scaled to reach from 0 to 1; the side is a power of two."""
    number = len(draws)
    offsets = draws.uniform(side * side).mul_(2).sub_(1)
    points = torch.zeros(number, 1, 1, device=draws.device)
    wibble = 100.0
    while (size := points.shape[-1]) < side:
        level = offsets[:, size**2 : 4 * size**2].mul_(wibble**2)
        points = _refined(points, level.view(number, 3, size, size))
        wibble /= decay
    points.sub_(points.amin((1, 2), keepdim=True))
    return points.div_(points.amax((1, 2), keepdim=True))


def _refined(corners: Tensor, offsets: Tensor) -> Tensor:
    """One level: n×n points and the offsets [N, 3, n, n] of their centres and edges to 2n×2n points."""
    centres, level, upright = offsets.unbind(1)
    pairs = corners + corners.roll(-1, 1)
    centres.add_(pairs, alpha=0.25).add_(pairs.roll(-1, 2), alpha=0.25)
    upright.add_(pairs, alpha=0.25).add_(centres, alpha=0.25).add_(centres.roll(1, 2), alpha=0.25)
    level.add_(corners, alpha=0.25).add_(corners.roll(-1, 2), alpha=0.25)
    level.add_(centres, alpha=0.25).add_(centres.roll(1, 1), alpha=0.25)
    even, odd = torch.stack([corners, level], -1).flatten(2), torch.stack([upright, centres], -1).flatten(2)
    return torch.stack([even, odd], 2).flatten(1, 2)
