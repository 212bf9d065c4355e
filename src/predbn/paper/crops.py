"""Test images cropped as training crops them, to see what prediction-time BN loses on clean ones.

Training moves each picture by up to four pixels and fills what is left with black, so that every batch whose
statistics a network has learnt to work with holds black borders. Test images have none: for statistics of the batch
they are shifted. With the same crops of test images that difference is gone; with a border that continues the
picture's edge pixels, crops are there and the black is not.
"""

from __future__ import annotations

import torch

from predbn.data import Images
from predbn.training import CROP_PADDING as PADDING
from predbn.training import crop_images as crop
from predbn.training import draw_crops as draw
from predbn.training import pad_images as pad

__all__ = ["BLACK", "CONTINUED", "CROPPED", "cropped"]

BLACK, CONTINUED = "crops", "crops-continued"
"""The plans, by the border of their crops."""
CROPPED = (BLACK, CONTINUED)


def cropped(images: Images, border: str) -> Images:
    """Every picture once, moved and mirrored as in an epoch of training, with the border of one of the plans."""
    count = len(images)
    drawn = draw(count, count, seed=0, epoch=0)
    padded = pad(images.images)
    if border == CONTINUED:
        rows, columns = (torch.arange(-PADDING, size + PADDING).clamp(0, size - 1) for size in images.images.shape[2:])
        padded = images.images.permute(0, 2, 3, 1)[:, rows][:, :, columns]
    moved = crop(padded, torch.arange(count), drawn.corner[0], drawn.mirrored[0])
    return Images(moved, images.labels, images.index, images.classes, f"{images.name}-{border}")
