"""The paper's CIFAR-10 augmentation: zero-pad by 4 pixels, crop at random, flip at random.

The random numbers of an epoch depend only on the seed, the epoch and the numbers of images and steps. They are drawn
on the CPU, so that they are the same on every device, and applied by one gather on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


class Crops(NamedTuple):
    """The random choices of one epoch, batch by batch."""

    order: Tensor
    """Which images: int64 [steps, batch]."""
    corner: Tensor
    """Row and column of the top left pixel in the padded image: int64 [steps, batch, 2]."""
    mirrored: Tensor
    """Whether the image is flipped horizontally: bool [steps, batch]."""


def draw_crops(count: int, batch: int, *, seed: int, epoch: int) -> Crops:
    """Every image at most once, in random order; a remainder that does not fill a batch is left out."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) & (2**63 - 1))
    steps = count // batch
    order = torch.randperm(count, generator=generator)[: steps * batch].view(steps, batch)
    corner = torch.randint(2 * PADDING + 1, (steps, batch, 2), generator=generator)
    mirrored = torch.randint(2, (steps, batch), generator=generator, dtype=torch.uint8).bool()
    return Crops(order, corner, mirrored)


def pad_images(images: Tensor) -> Tensor:
    """uint8 [N, 3, H, W] → [N, H + 8, W + 8, 3] with a black border, the layout in which a pixel is contiguous."""
    return F.pad(images, (PADDING,) * 4).permute(0, 2, 3, 1).contiguous()


def crop_images(padded: Tensor, order: Tensor, corner: Tensor, mirrored: Tensor) -> Tensor:
    """The augmented batch, uint8 [n, 3, H, W] in channels_last."""
    height, width = padded.shape[1] - 2 * PADDING, padded.shape[2] - 2 * PADDING
    rows = corner[:, 0, None] + torch.arange(height, device=padded.device)
    across = torch.arange(width, device=padded.device)
    columns = corner[:, 1, None] + torch.where(mirrored[:, None], width - 1 - across, across)
    return padded[order[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
