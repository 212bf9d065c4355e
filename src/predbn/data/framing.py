"""How a picture is brought to the size that a network takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from predbn.common import DataError

__all__ = ["UNREADABLE", "Framing", "Interpolation", "Pixels", "frame", "read_picture"]

Interpolation = Literal["bilinear", "bicubic", "lanczos", "nearest"]
Pixels = npt.NDArray[np.uint8]

UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


@dataclass(frozen=True)
class Framing:
    """The shorter side is resized to `resize` pixels, then the middle of `size` (height, width) is cut out.

    Sides round as in torchvision and timm, whose published accuracies are of pictures framed so: the longer one down,
    the margin to the nearest even number. A picture that has the size already stays as it is: it has been framed
    before, as those of ImageNet-C have.
    """

    size: tuple[int, int]
    resize: int
    interpolation: Interpolation = "bilinear"


def frame(
    size: int | tuple[int, int] | None, resize: int | None = None, interpolation: Interpolation = "bilinear"
) -> Framing | None:
    """The framing that these plain arguments mean, checked; None where pictures are to stay as they are.

    One number is a square. Without `resize` the shorter side is brought to that of `size`, so that most of the
    picture is kept.
    """
    if size is None:
        if resize is not None:
            raise DataError(f"resize is {resize}, but there is no size to cut out: give both.")
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise DataError(f"size is {size}, but a picture has at least 1 pixel a side.")
    shorter = min(height, width) if resize is None else resize
    if shorter < min(height, width):
        raise DataError(f"resize is {resize}, but {min(height, width)} pixels are then to be cut out: make it larger.")
    if interpolation not in get_args(Interpolation):
        raise DataError(f"interpolation is {interpolation!r}, but must be one of {', '.join(get_args(Interpolation))}.")
    return Framing((height, width), shorter, interpolation)


def read_picture(path: str | Path, framing: Framing | None = None) -> Pixels:
    """A picture [H, W, 3], framed where that is asked for."""
    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read as a picture ({error}): replace it.") from None
    return np.asarray(picture if framing is None else _framed(picture, framing))


def _framed(picture: Image.Image, framing: Framing) -> Image.Image:
    height, width = framing.size
    if picture.size == (width, height):
        return picture
    shorter = min(picture.size)
    sides = [int(framing.resize * side / shorter) for side in picture.size]
    cover = max(1.0, width / sides[0], height / sides[1])
    across, down = (round(side * cover) for side in sides)
    resampling = Image.Resampling[framing.interpolation.upper()]
    left, top = round((across - width) / 2), round((down - height) / 2)
    return picture.resize((across, down), resampling).crop((left, top, left + width, top + height))
