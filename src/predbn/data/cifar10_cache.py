"""CIFAR-10 in one compact file: read and checked once from wherever it came, then in a second or two.

A zip without compression of its own holds, for each of the six official files, a lossless mosaic of its
images and its labels as bytes. Parts that are not asked for are not read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from predbn.common import DataError, cache_folder, finish, map_threads, part_of

from . import mosaic
from .cifar10_layouts import Arrays
from .cifar10_sums import check

__all__ = ["cache_file", "read_cache", "write_cache"]


def cache_file(folder: Path | None = None) -> Path:
    """Where the file is, or would be."""
    return (folder or cache_folder()) / "cifar10.zip"


def read_cache(path: Path, names: Sequence[str]) -> list[Arrays]:
    """The arrays of the named files, each checked against its recorded sums."""

    def read(name: str) -> Arrays:
        try:
            with zipfile.ZipFile(path) as file:
                labels = np.frombuffer(file.read(f"{name}.labels"), np.uint8).astype(np.int64)
                arrays = Arrays(mosaic.decode(file.read(f"{name}.webp"), len(labels)), labels)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{path} is damaged ({error}): make it anew with predbn data cifar10.") from None
        check(name, f"{name} in {path}", arrays)
        return arrays

    return map_threads(read, names)


def write_cache(path: Path, files: Iterable[tuple[str, str, Arrays]]) -> None:
    """Check each file (name, place, arrays) and keep it; the cache appears when all are there, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(part_of(path), "w", zipfile.ZIP_STORED) as cache:
            for name, place, arrays in files:
                check(name, place, arrays)
                cache.writestr(zipfile.ZipInfo(f"{name}.webp"), mosaic.encode(arrays.images))
                cache.writestr(zipfile.ZipInfo(f"{name}.labels"), arrays.labels.astype(np.uint8).tobytes())
        finish(path)
    finally:
        part_of(path).unlink(missing_ok=True)
