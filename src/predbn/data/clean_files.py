"""Clean data, read from a user's files and checked before anything is written."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from predbn.common import ShiftError

__all__ = ["digest_of", "list_pictures", "read_array", "read_crop"]

_PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}
_SHORTER, _SIDE = 256, 224


def read_crop(place: str) -> npt.NDArray[np.uint8]:
    """A picture as the benchmark sees it before it is corrupted."""
    try:
        with Image.open(place) as opened:
            picture = opened.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ShiftError(f"{place} cannot be read as a picture: remove or replace it.") from error
    width, height = picture.size
    if (width, height) != (_SIDE, _SIDE):
        scale = _SHORTER / min(width, height)
        size = (max(_SHORTER, int(width * scale)), max(_SHORTER, int(height * scale)))
        picture = picture.resize(size, Image.Resampling.BILINEAR)
        left, top = (round((side - _SIDE) / 2) for side in size)
        picture = picture.crop((left, top, left + _SIDE, top + _SIDE))
    return np.asarray(picture)


def list_pictures(source: Path) -> list[Path]:
    """The pictures of a folder of class folders, sorted."""
    if not source.is_dir():
        raise ShiftError(f"{source} is not a directory with one folder of pictures a class.")
    found = sorted(p for p in source.glob("*/*") if p.suffix.lower() in _PICTURES and p.is_file())
    if not found:
        raise ShiftError(f"{source} has no pictures in class folders, as <class>/<image>.JPEG.")
    return found


def read_array(source: Path | npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """The array itself, or the one in a .npy file, left on the disk until it is read."""
    if isinstance(source, np.ndarray):
        return source
    try:
        loaded = np.load(source, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ShiftError(f"{source} cannot be read as the .npy file of the {what}.") from error
    if not isinstance(loaded, np.ndarray):
        raise ShiftError(f"{source} holds several arrays: give the {what} as a .npy file with one.")
    return loaded


def digest_of(array: npt.NDArray[Any]) -> str:
    """A name for the contents of an array."""
    digest = hashlib.sha256(str((array.dtype, array.shape)).encode())
    for start in range(0, len(array), 4096):
        digest.update(np.ascontiguousarray(array[start : start + 4096]).tobytes())
    return digest.hexdigest()
