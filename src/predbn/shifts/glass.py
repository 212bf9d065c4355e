"""The shuffle inside glass blur: pixels copied one after another, resolved for a whole batch at once.

The reference walks over the pixels from the bottom right to the top left and lets each receive the value
of a neighbour drawn at random within d pixels. What looks like a swap there is a copy, since both sides are
views of one array. A neighbour q of p that lies later in memory has been walked over before and gives its new
value, one that lies earlier (or is p itself) gives its old one:

    new[p] = new[q]  if q > p,   old[q]  otherwise;   new[p] = old[p] on the border, which is not walked over.

So each pixel heads a chain of copies that ends at an old value, and following all chains by pointer doubling
takes log₂(longest chain) steps instead of one step a pixel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.shifts.random import Draws

__all__ = ["shuffled_pixels"]


def shuffled_pixels(draws: Draws, height: int, width: int, reach: int, rounds: int) -> Tensor:
    """[N, H·W]: the pixel of image n whose value each pixel shows after the given number of walks."""
    number, pixels = len(draws), height * width
    start = torch.arange(number, device=draws.device)[:, None] * pixels
    shown: Tensor | None = None
    for _ in range(rounds):
        origin = _resolve(_neighbours(draws, height, width, reach).add_(start).view(-1))
        shown = origin if shown is None else shown[origin]
    assert shown is not None
    return shown.view(number, pixels).sub_(start)


def _neighbours(draws: Draws, height: int, width: int, reach: int) -> Tensor:
    """[N, H·W]: the neighbour that each pixel looks at, dy and dx uniform in −reach … reach − 1."""
    span = 2 * reach
    place = torch.arange(height * width, device=draws.device).view(height, width)
    looked_at = place.expand(len(draws), -1, -1).clone()
    drawn = draws.integers(0, span * span, height - span, width - span)
    down = drawn // span
    offset = drawn.add_(down, alpha=width - span).sub_(reach * (width + 1))
    looked_at[:, reach + 1 : height - reach + 1, reach + 1 : width - reach + 1].add_(offset)
    return looked_at.view(len(draws), -1)


def _resolve(looked_at: Tensor) -> Tensor:
    """Follow every chain to its end.

    A pixel whose end is known holds it as −1 − end; the others hold a pixel with the same end as theirs.
    """
    place = torch.arange(len(looked_at), device=looked_at.device)
    ahead = looked_at > place
    link = torch.where(ahead, looked_at, -1 - looked_at)
    open_ends = ahead.nonzero().squeeze(1)
    while len(open_ends):
        reached = link[link[open_ends]]
        link[open_ends] = reached
        open_ends = open_ends[reached >= 0]
    return -1 - link
