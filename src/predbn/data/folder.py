"""Images from a folder of class folders, decoded once and kept in the cache folder.

The cache holds uint8 [N, 3, H, W] in one .npy file, which is mapped into memory. Its name is a hash of what it was
made from: the fingerprint of the folder and the resizing. The other splits of a benchmark, the next run and the next
model with the same resizing read it instead of decoding again. It is written chunk by chunk, so that memory does not
grow with the number of pictures, and gets its name only when it is complete.

Decoding uses threads and not processes: Pillow releases the interpreter lock while it decodes and resizes, so threads
keep all cores busy, and nothing is copied between processes (`benchmarks/decoding.py` measures both). The file stores
channels first, so that a batch is a copy of whole rows and no picture has to be transposed again and again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import astuple
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from predbn.common import CHECKSUM_FIELD, DataError, Progress, atomic_write, cache_folder, lock_folder, map_threads

from .batch import choose_positions
from .images import Images
from .npy import load_array
from .picture_content import PictureError, open_picture
from .pictures import (
    Interpolation,
    Listing,
    Pixels,
    ResizeCrop,
    list_pictures,
    read_picture,
    resize_crop,
)

_FORMAT = 1
_CHUNK_BYTES = 2**26


def from_folder(
    path: str | Path,
    size: int | tuple[int, int] | None = None,
    *,
    resize: int | None = None,
    interpolation: Interpolation = "bilinear",
    images: int | None = None,
    progress: Progress | None = None,
) -> Images:
    """The pictures of a folder `<class>/<picture>`. Labels and index follow the sorted order of classes and pictures.

    Without `size` all pictures must have the same height and width. With it, the shorter side is resized to `resize`
    pixels (by default the shorter side of `size`) and the centre of that size is cropped; pictures that already have
    the size are not changed. All pictures are decoded once, into a file of the cache folder that later calls map into
    memory; a picture that cannot be read is an error before any image is returned. With `images`, only that many are
    decoded (`choose_positions`). `progress` is called with the number of decoded pictures and the total.
    """
    transform = resize_crop(size, resize, interpolation)
    listing = list_pictures(Path(path))
    chosen = choose_positions(len(listing), images)
    listing = listing.take(chosen)
    pixels = decode(listing, transform, progress)
    name = listing.root.resolve().name
    return Images(pixels, listing.labels, chosen, listing.classes, name, tuple(listing.names))


def decode(listing: Listing, transform: ResizeCrop | None, progress: Progress | None = None) -> Tensor:
    """The pictures of a folder as uint8 [N, 3, H, W], from the cache, or decoded into it first.

    Without a transform all must have the same height and width. If several processes want the same pictures, one of
    them decodes and the others wait.
    """
    path = _cache_path(listing, transform)
    array = _read_cached(path, listing, transform)
    if array is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with lock_folder(path.parent, wait=True):
                if _read_cached(path, listing, transform) is None:
                    _decode_to(path, listing, transform, progress)
        except OSError as error:
            raise DataError(
                f"{path.parent} cannot store the {len(listing):,} decoded pictures ({error.strerror or error}): "
                "set PREDBN_CACHE to a folder that has room for them."
            ) from None
        array = load_array(path)
    return torch.from_numpy(array)


def decoded_files(folder: Path | None = None) -> list[Path]:
    """The files of decoded pictures in the cache folder. They can be deleted; they are made again when needed."""
    return sorted(((folder or cache_folder()) / "decoded").glob("*.npy"))


def _cache_path(listing: Listing, transform: ResizeCrop | None) -> Path:
    contents = (_FORMAT, listing.fingerprint(), None if transform is None else astuple(transform))
    key = hashlib.sha256(repr(contents).encode()).hexdigest()[:16]
    return cache_folder() / "decoded" / f"{listing.root.resolve().name}-{key}.npy"


def _read_cached(path: Path, listing: Listing, transform: ResizeCrop | None) -> Pixels | None:
    """The cached array; None if there is no file or a damaged one, which is then replaced."""
    if not path.is_file():
        return None
    try:
        array = load_array(path)
    except DataError:
        return None
    shape = (len(listing), 3, *(array.shape[2:] if transform is None else transform.size))
    return array if array.dtype == np.uint8 and array.ndim == 4 and array.shape == shape else None


def _decode_to(path: Path, listing: Listing, transform: ResizeCrop | None, progress: Progress | None) -> None:
    """Decode all pictures before reporting the unreadable ones, so that one error names how many there are."""
    height, width = _common_size(listing) if transform is None else transform.size
    shape = (len(listing), 3, height, width)
    chunk_length = max(16, _CHUNK_BYTES // (3 * height * width))
    unreadable: dict[int, PictureError] = {}
    with atomic_write(path, checksum=True) as part:
        with part.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, len(listing), chunk_length):
                stop = min(start + chunk_length, len(listing))
                chunk = np.empty((stop - start, *shape[1:]), np.uint8)
                unreadable |= _decode_chunk(chunk, listing, transform, start)
                if not unreadable:
                    file.write(chunk.data)
                if progress is not None:
                    progress(stop, len(listing))
            file.write(CHECKSUM_FIELD.encode())
        if unreadable:
            raise _unreadable_error(listing, unreadable)


def _decode_chunk(chunk: Pixels, listing: Listing, transform: ResizeCrop | None, start: int) -> dict[int, PictureError]:
    """Fill the chunk with the pictures from `start` on; return the positions of those that cannot be read, and why."""
    unreadable: dict[int, PictureError] = {}

    def read(row: int) -> None:
        try:
            pixels = read_picture(listing.path(start + row), transform)
        except PictureError as error:
            unreadable[start + row] = error
        else:
            cv2.split(pixels, list(chunk[row]))

    map_threads(read, range(len(chunk)))
    return unreadable


def _common_size(listing: Listing) -> tuple[int, int]:
    """Height and width of all pictures, from their headers; an error if they are not the same."""

    unreadable: dict[int, PictureError] = {}

    def read_size(position: int) -> tuple[int, int]:
        try:
            with open_picture(listing.path(position)) as picture:
                return picture.height, picture.width
        except PictureError as error:
            unreadable[position] = error
            return 0, 0

    sizes = map_threads(read_size, range(len(listing)))
    if unreadable:
        raise _unreadable_error(listing, unreadable)
    usual, count = Counter(sizes).most_common(1)[0]
    others = [(position, size) for position, size in enumerate(sizes) if size != usual]
    if others:
        position, (height, width) = others[0]
        raise DataError(
            f"{listing.path(position)} is {height}×{width} pixels, but {count} of the {len(listing)} pictures in "
            f"{listing.root} are {usual[0]}×{usual[1]}, and {len(others)} are not: "
            "give a size to resize and crop all of them to (on the command line --size)."
        )
    return usual


def _unreadable_error(listing: Listing, unreadable: dict[int, PictureError]) -> PictureError:
    """The error of the first unreadable picture, with how many others there are."""
    total, more = len(listing), len(unreadable) - 1
    first = unreadable[min(unreadable)]
    others = f" (and {more} more of {total})" if more else f" (the only one of {total})"
    return PictureError(first.path, first.reason, first.remedy, others)
