"""A sample of CIFAR-10 that comes with the package, so that it does its main job with no download.

The first 200 test images of each class, and the first 100 of each class among the last 5,000 training images, in the
official order. Those are held out of training as validation data, so that temperatures and eps can be fitted on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from predbn.common import DataError

from . import mosaic
from .cifar10_sums import CLASSES
from .images import Images

__all__ = ["SAMPLE_FOLDER", "SAMPLE_SUMS", "SamplePart", "sample"]

SamplePart = Literal["validation", "test"]

SAMPLE_FOLDER = Path(__file__).parent / "pictures"
SAMPLE_SUMS: dict[str, dict[str, str]] = {
    "validation": {
        "images": "91895f76ea5445dcffee16cf9e4a1833f7f6fab5c0b735e75016d70eb38cff2a",
        "labels": "8d156491a635661d2e88165d4ca0ba090bb1f06055533e61d75c168ac04c7bb3",
    },
    "test": {
        "images": "8d277edbb8cfaae8b30930a53ea965f4807864978cd49d5b27436460ee76adfe",
        "labels": "c807a9faa296958ab3c4254873d545467cd21a216764c2c4af7b2180b6e7821c",
    },
}


def sample(part: SamplePart) -> Images:
    """1,000 validation or 2,000 test images, as many of each class; `index` holds their official positions.

    `<part>.webp` is a lossless mosaic, `<part>.npy` the position and the label of each image, uint16 [N, 2].
    """
    if part not in get_args(SamplePart):
        raise DataError(f"There is no embedded sample {part!r}: use {' or '.join(get_args(SamplePart))}.")
    try:
        table = np.load(SAMPLE_FOLDER / f"{part}.npy", allow_pickle=False).astype(np.int64)
        pixels = mosaic.decode((SAMPLE_FOLDER / f"{part}.webp").read_bytes(), len(table))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"The embedded sample in {SAMPLE_FOLDER} is damaged ({error}): reinstall predbn.") from None
    index, labels = torch.from_numpy(table).unbind(1)
    images = Images(torch.from_numpy(pixels), labels.clone(), index.clone(), CLASSES, f"cifar10-sample-{part}")
    if images.sums != SAMPLE_SUMS[part]:
        raise DataError(f"The embedded sample in {SAMPLE_FOLDER} is damaged (wrong SHA-256): reinstall predbn.")
    return images
