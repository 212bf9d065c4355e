"""Zero-pad by 4, crop at random, flip at random: drawn per epoch, done in one gather on the device.

What is drawn follows from the seed of the run, the epoch and the numbers of images and steps alone, on the CPU, so
that it is the same on every device and whatever else is trained beside.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["PADDING", "Draw", "crop", "draw", "pad"]

PADDING = 4


class Draw(NamedTuple):
    """One epoch of one run, in steps of a batch: which images, from which corner, and whether mirrored."""

    order: Tensor
    """int64 [steps, batch]"""
    corner: Tensor
    """int64 [steps, batch, 2], row and column"""
    mirrored: Tensor
    """bool [steps, batch]"""


def draw(count: int, batch: int, *, seed: int, epoch: int) -> Draw:
    """Every image at most once, in a new order; the remainder that fills no batch is left out, another each epoch."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) & (2**63 - 1))
    steps = count // batch
    order = torch.randperm(count, generator=generator)[: steps * batch].view(steps, batch)
    corner = torch.randint(2 * PADDING + 1, (steps, batch, 2), generator=generator)
    mirrored = torch.randint(2, (steps, batch), generator=generator, dtype=torch.uint8).bool()
    return Draw(order, corner, mirrored)


def pad(images: Tensor) -> Tensor:
    """uint8 [N, 3, H, W] → [N, H + 8, W + 8, 3] with a black border: the layout in which `crop` reads whole pixels."""
    return F.pad(images, (PADDING,) * 4).permute(0, 2, 3, 1).contiguous()


def crop(padded: Tensor, order: Tensor, corner: Tensor, mirrored: Tensor) -> Tensor:
    """The augmented batch, uint8 [n, 3, H, W] in channels_last."""
    height, width = padded.shape[1] - 2 * PADDING, padded.shape[2] - 2 * PADDING
    rows = corner[:, 0, None] + torch.arange(height, device=padded.device)
    across = torch.arange(width, device=padded.device)
    columns = corner[:, 1, None] + torch.where(mirrored[:, None], width - 1 - across, across)
    return padded[order[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
