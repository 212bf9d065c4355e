"""The paper's CIFAR-10 augmentation: pad by 4 black pixels, crop at random, flip at random.

The paper's code pads by 2, and a border may also continue the image: batches of crops with a black border have other
statistics than whole images, which prediction-time BN takes for a shift (C2.3 in docs/replication-claims.md).

The random numbers of an epoch depend only on the seed, the epoch and the numbers of images and steps. They are drawn
on the CPU, so that they are the same on every device, and applied by one gather on the device.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4
Border = Literal["zero", "edge", "reflect"]
"""The content of the border: black, the pixel at the edge, or the image reflected at that pixel."""
BORDERS: tuple[Border, ...] = get_args(Border)


class Crops(NamedTuple):
    """The random choices of one epoch, batch by batch."""

    order: Tensor
    """Which images: int64 [steps, batch]."""
    corner: Tensor
    """Row and column of the top left pixel in the padded image: int64 [steps, batch, 2]."""
    mirrored: Tensor
    """Whether the image is flipped horizontally: bool [steps, batch]."""


def draw_crops(count: int, batch: int, *, seed: int, epoch: int, padding: int = PADDING) -> Crops:
    """Shuffle the images; the last, incomplete batch is dropped."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) & (2**63 - 1))
    steps = count // batch
    order = torch.randperm(count, generator=generator)[: steps * batch].view(steps, batch)
    corner = torch.randint(2 * padding + 1, (steps, batch, 2), generator=generator)
    mirrored = torch.randint(2, (steps, batch), generator=generator, dtype=torch.uint8).bool()
    return Crops(order, corner, mirrored)


def pad_images(images: Tensor, padding: int = PADDING, border: Border = "zero") -> Tensor:
    """uint8 [N, 3, H, W] → [N, H + 2·padding, W + 2·padding, 3], the layout in which a pixel is contiguous."""
    if border == "zero":
        return F.pad(images, (padding,) * 4).permute(0, 2, 3, 1).contiguous()
    rows, columns = (_border_positions(size, padding, border) for size in images.shape[2:])
    return images.permute(0, 2, 3, 1)[:, rows][:, :, columns]


def _border_positions(size: int, padding: int, border: Border) -> Tensor:
    """The index into a row of `size` pixels for each pixel of the padded row (F.pad cannot do this with uint8)."""
    positions = torch.arange(-padding, size + padding)
    if border == "edge":
        return positions.clamp(0, size - 1)
    return size - 1 - (size - 1 - positions.abs()).abs()


def crop_images(padded: Tensor, order: Tensor, corner: Tensor, mirrored: Tensor, *, padding: int = PADDING) -> Tensor:
    """The augmented batch, uint8 [n, 3, H, W] in channels_last."""
    height, width = padded.shape[1] - 2 * padding, padded.shape[2] - 2 * padding
    rows = corner[:, 0, None] + torch.arange(height, device=padded.device)
    across = torch.arange(width, device=padded.device)
    columns = corner[:, 1, None] + torch.where(mirrored[:, None], width - 1 - across, across)
    return padded[order[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
