"""Pictures decoded once: uint8 [N, 3, H, W] in one .npy file of the cache folder, mapped into memory.

The file is named by what it was made of: the fingerprint of the folder and the framing. 95 splits of a benchmark, the
next run and the next model with the same framing read it instead of decoding. It is written chunk by chunk, so that
memory does not grow with the number of pictures, and gets its name when all are in it: it is there whole or not at all.

Threads decode, not processes: Pillow lets go of the interpreter while it decodes and resizes, so that threads keep
all cores busy and nothing is copied between processes (`benchmarks/decoding.py` measures both). Channels come first
in the file: a batch is then picked by copying whole rows instead of turning each picture round, every time anew.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import cv2
import numpy as np
import torch
from filelock import FileLock
from PIL import Image
from torch import Tensor

from predbn.common import DataError, cache_folder, finish, map_threads, part_of

from .framing import UNREADABLE, Framing, Pixels, read_picture
from .listing import Listing
from .npy import load_array

__all__ = ["Report", "decode", "decoded_files"]

Report = Callable[[int, int], object]

_FORMAT = 1
_CHUNK_BYTES = 2**26


def decode(listing: Listing, framing: Framing | None, report: Report | None = None) -> Tensor:
    """The pictures of a folder, from the cache where they are in it, else decoded into it.

    All are decoded before any is handed out: those that cannot be read are named and counted here, not in the middle
    of an evaluation. Without a framing all must have the same height and width. `report` gets how many are decoded,
    and of how many. Where several processes want the same pictures, one decodes and the others wait for it.
    """
    path = _path(listing, framing)
    found = _cached(path, listing, framing)
    if found is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.parent / ".lock"):
                if _cached(path, listing, framing) is None:
                    _write(path, listing, framing, report)
        except OSError as error:
            raise DataError(
                f"{path.parent} cannot take the {len(listing):,} decoded pictures ({error.strerror or error}): "
                "set PREDBN_CACHE to a folder that has room for them."
            ) from None
        found = load_array(path)
    return torch.from_numpy(found)


def decoded_files(folder: Path | None = None) -> list[Path]:
    """The files of decoded pictures in the cache folder; each can be deleted, and is then made anew when needed."""
    return sorted(((folder or cache_folder()) / "decoded").glob("*.npy"))


def _path(listing: Listing, framing: Framing | None) -> Path:
    made_of = (_FORMAT, listing.fingerprint(), None if framing is None else astuple(framing))
    key = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    return cache_folder() / "decoded" / f"{listing.root.resolve().name}-{key}.npy"


def _cached(path: Path, listing: Listing, framing: Framing | None) -> Pixels | None:
    """What the file holds, or None where there is none, or one that is damaged and is to be replaced."""
    if not path.is_file():
        return None
    try:
        found = load_array(path)
    except DataError:
        return None
    wanted = (len(listing), 3, *(framing.size if framing is not None else found.shape[2:]))
    return found if found.dtype == np.uint8 and found.ndim == 4 and found.shape == wanted else None


def _write(path: Path, listing: Listing, framing: Framing | None, report: Report | None) -> None:
    height, width = framing.size if framing is not None else _common_size(listing)
    shape = (len(listing), 3, height, width)
    at_once = max(16, _CHUNK_BYTES // (3 * height * width))
    broken: list[int] = []
    try:
        with part_of(path).open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, len(listing), at_once):
                stop = min(start + at_once, len(listing))
                chunk, failed = _read(listing, framing, start, np.empty((stop - start, *shape[1:]), np.uint8))
                broken.extend(failed)
                if not broken:
                    file.write(chunk.data)
                if report is not None:
                    report(stop, len(listing))
        if broken:
            raise _unreadable(listing, broken)
        finish(path)
    finally:
        part_of(path).unlink(missing_ok=True)


def _read(listing: Listing, framing: Framing | None, start: int, chunk: Pixels) -> tuple[Pixels, list[int]]:
    """Fill the chunk with the pictures from `start` on; the positions of those that cannot be read go beside it."""
    broken: list[int] = []

    def read(row: int) -> None:
        try:
            pixels = read_picture(listing.path(start + row), framing)
        except DataError:
            broken.append(start + row)
        else:
            cv2.split(pixels, list(chunk[row]))

    map_threads(read, range(len(chunk)))
    return chunk, broken


def _common_size(listing: Listing) -> tuple[int, int]:
    """Height and width of all the pictures, from their heads alone; others than most are named and counted."""

    def measure(position: int) -> tuple[int, int] | None:
        try:
            with Image.open(listing.path(position)) as picture:
                return picture.height, picture.width
        except UNREADABLE:
            return None

    sizes = map_threads(measure, range(len(listing)))
    broken = [position for position, size in enumerate(sizes) if size is None]
    if broken:
        raise _unreadable(listing, broken)
    usual, times = Counter(size for size in sizes if size is not None).most_common(1)[0]
    other = [(position, size) for position, size in enumerate(sizes) if size is not None and size != usual]
    if other:
        position, (height, width) = other[0]
        raise DataError(
            f"{listing.path(position)} is {height}×{width} pixels where {times} of the {len(listing)} pictures in "
            f"{listing.root} are {usual[0]}×{usual[1]}, and {len(other)} are not: "
            "give a size to resize and crop all to."
        )
    return usual


def _unreadable(listing: Listing, broken: list[int]) -> DataError:
    total, more = len(listing), len(broken) - 1
    others = f" (and {more} more of {total})" if more else f" (of {total}, the only one)"
    first = listing.path(min(broken))
    return DataError(f"{first} cannot be read as a picture{others}: replace or remove what cannot be read.")
