"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["PART", "finish", "part_of", "write_array", "write_bytes"]

PART = ".part"


def part_of(path: Path) -> Path:
    """Where a file is written until it is complete."""
    return path.with_name(path.name + PART)


def finish(path: Path) -> None:
    """Bring the complete part to the disk and give it its name, in one step that cannot be half done."""
    with part_of(path).open("rb+") as file:
        os.fsync(file.fileno())
    part_of(path).replace(path)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file whole. Its name appears last; after a crash it is missing rather than torn."""
    part_of(path).write_bytes(content)
    part_of(path).replace(path)


def write_array(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Write a .npy file whole."""
    with part_of(path).open("wb") as file:
        np.save(file, array)
    finish(path)
