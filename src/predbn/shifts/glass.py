"""The shuffle inside glass blur: pixels copied one after another, resolved for a whole batch at once.

The reference walks over the pixels from the bottom right to the top left and lets each receive the value
of a neighbour drawn at random within d pixels. What looks like a swap there is a copy, since both sides are
views of one array. A neighbour q of p that lies later in memory has been walked over before and gives its new
value, one that lies earlier (or is p itself) gives its old one:

    new[p] = new[q]  if q > p,   old[q]  otherwise;   new[p] = old[p] on the border, which is not walked over.

So each pixel heads a chain of copies that ends at an old value, and following all chains by pointer doubling
takes log₂(longest chain) steps instead of one step a pixel. The chains live on 2n nodes: p < n stands for
the new value of pixel p, n + p for its old one, which leads to itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import Draws

__all__ = ["shuffled_pixels"]


def shuffled_pixels(draws: Draws, height: int, width: int, reach: int, rounds: int) -> Tensor:
    """int32 [N·H·W]: the place in the batch whose value each pixel shows after the given number of walks."""
    count = len(draws) * height * width
    link = torch.arange(2 * count, dtype=torch.int32, device=draws.device)
    spare = link.clone()
    old = spare[count:].view(-1, height, width)
    walked = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    shown: Tensor | None = None
    for _ in range(rounds):
        new = link[:count].view(old.shape).copy_(old)
        offset = _offsets(draws, height, width, reach)
        new[:, walked[0], walked[1]].add_(offset).sub_(offset.gt(0).to(torch.int32), alpha=count)
        while int(link[:count].amin()) < count:
            torch.index_select(link, 0, link[:count], out=spare[:count])
            link, spare = spare, link
        end = link[:count] - count
        shown = end if shown is None else shown.index_select(0, end)
    assert shown is not None
    return shown


def _offsets(draws: Draws, height: int, width: int, reach: int) -> Tensor:
    """int32 [N, H − 2d, W − 2d]: the distance in memory to the neighbour drawn, dy·W + dx.

    dy and dx are uniform in −d … d − 1, each from sixteen bits of one word and so to 2d/2¹⁶.
    """
    span = 2 * reach
    words = draws.bits(height - span, width - span)
    down = words.bitwise_and(0xFFFF).mul_(span).bitwise_right_shift_(16)
    right = words.bitwise_right_shift_(16).bitwise_and_(0xFFFF).mul_(span).bitwise_right_shift_(16)
    return right.add_(down, alpha=width).sub_(reach * (width + 1))
