"""Inception's augmentation (Szegedy et al. 2015): a random crop of the image, resized, and mirrored at random.

The crop covers 5 % to 100 % of the area with an aspect ratio from 3/4 to 4/3, as in TensorFlow's ImageNet training,
which the paper used. It depends only on the seed, the epoch and the index of the image.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from predbn.data import DataError, Pixels, as_pixels, open_picture

AREA = (0.05, 1.0)
RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10


class Crop(NamedTuple):
    """A crop in pixels of the image, and whether it is mirrored."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool


def draw_crop(width: int, height: int, *, seed: int, epoch: int, index: int) -> Crop:
    """Uniform in area, log aspect ratio and position; after ten crops that do not fit, the centre of the image."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch, index))))
    mirrored = bool(generator.integers(2))
    for _ in range(_ATTEMPTS):
        area = generator.uniform(*AREA) * width * height
        ratio = math.exp(generator.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = generator.integers(width - across + 1), generator.integers(height - down + 1)
            return Crop(int(left), int(top), across, down, mirrored)
    across = min(width, max(1, round(height * RATIO[1])))
    down = min(height, max(1, round(width / RATIO[0])))
    return Crop((width - across) // 2, (height - down) // 2, across, down, mirrored)


def read_crop(path: str | Path, size: int, *, seed: int, epoch: int, index: int) -> Pixels:
    """The augmented image, uint8 [size, size, 3].

    If the crop is larger than needed, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size: GPUs wait for decoding.
    """
    try:
        with open_picture(path) as opened:
            full = opened.size
            crop = draw_crop(*full, seed=seed, epoch=epoch, index=index)
            scale = max(size / crop.width, size / crop.height)
            opened.draft("RGB", (math.ceil(full[0] * scale), math.ceil(full[1] * scale)))
            image = as_pixels(opened)
    except DataError as error:
        raise DataError(str(error)) from None  # a DataLoader can only pass on errors that are built from a string
    x, y = image.width / full[0], image.height / full[1]
    box = (
        crop.left * x,
        crop.top * y,
        min(image.width, (crop.left + crop.width) * x),
        min(image.height, (crop.top + crop.height) * y),
    )
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if crop.mirrored else image)
