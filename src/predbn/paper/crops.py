"""Images cropped as in training, with the border that a network's own training crops have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from predbn.data import Images
from predbn.training import CROP_PADDING, crop_images, draw_crops, pad_images


def border_of(card: Mapping[str, Any]) -> tuple[int, str]:
    """How many pixels the training crops of a network were padded by, and with what, from the card of its weights."""
    recipe = card.get("recipe", {})
    return int(recipe.get("padding", CROP_PADDING)), str(recipe.get("border", "zero"))


def crop_like_training(images: Images, padding: int = CROP_PADDING, border: str = "zero") -> Images:
    """Every image once, moved and mirrored as in an epoch of training.

    Training moves each image by up to `padding` pixels, usually into a black border, so the batches whose statistics a
    network has learnt to work with have black borders. Whole images have none: for batch statistics, they are shifted.
    """
    count = len(images)
    crops = draw_crops(count, count, seed=0, epoch=0, padding=padding)
    padded = pad_images(images.images, padding, border)  # type: ignore[arg-type]
    cropped = crop_images(padded, torch.arange(count), crops.corner[0], crops.mirrored[0], padding=padding)
    name = f"{images.name}-crops-{border}-{padding}"
    return Images(cropped, images.labels, images.index, images.classes, name)
