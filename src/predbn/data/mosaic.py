"""Many small pictures in one losslessly compressed large one.

WebP without loss takes a fifth less room than PNG for photographs of this size, and decodes as fast; one
picture of many saves the head and the tables of each. 10,000 CIFAR images take 18 MB instead of 31 MB.
"""

from __future__ import annotations

import io
import math

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["decode", "encode"]


def encode(images: npt.NDArray[np.uint8], *, effort: int = 0) -> bytes:
    """uint8 [N, 3, H, W] as a WebP picture, ⌈√N⌉ images a row; effort, 0 to 6, trades time for a few per cent."""
    count, _, height, width = images.shape
    columns = max(1, math.isqrt(max(0, count - 1)) + 1)
    rows = max(1, -(-count // columns))
    tiles = np.zeros((rows * columns, height, width, 3), np.uint8)
    tiles[:count] = images.transpose(0, 2, 3, 1)
    mosaic = tiles.reshape(rows, columns, height, width, 3).swapaxes(1, 2)
    file = io.BytesIO()
    picture = Image.fromarray(mosaic.reshape(rows * height, columns * width, 3))
    picture.save(file, "WEBP", lossless=True, method=effort, quality=100 if effort == 6 else 50)
    return file.getvalue()


def decode(content: bytes, count: int, side: int = 32) -> npt.NDArray[np.uint8]:
    """The first `count` images of a mosaic of square ones, uint8 [count, 3, side, side]."""
    with Image.open(io.BytesIO(content)) as picture:
        mosaic = np.asarray(picture.convert("RGB"))
    rows, columns = mosaic.shape[0] // side, mosaic.shape[1] // side
    if mosaic.shape[:2] != (rows * side, columns * side) or count > rows * columns:
        raise ValueError(f"{mosaic.shape[1]}×{mosaic.shape[0]} pixels do not hold {count} images of {side}×{side}.")
    tiles = mosaic.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(rows * columns, 3, side, side)[:count])
