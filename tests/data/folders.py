"""Small folders of pictures in the published layouts."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image


def pixels_of(number: int, height: int = 20, width: int = 24) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def make_folder(root: Path, classes: Iterable[str], *, each: int = 1, height: int = 5, width: int = 6) -> Path:
    """`<class>/<number>.png`, with consecutive numbers over all classes in this order."""
    number = 0
    for name in classes:
        (root / name).mkdir(parents=True)
        for _ in range(each):
            Image.fromarray(pixels_of(number, height, width)).save(root / name / f"{number:05}.png", compress_level=0)
            number += 1
    return root
