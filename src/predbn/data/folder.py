"""Images from a folder of class folders, decoded once and kept in the cache folder.

The cache holds uint8 [N, C, H, W] in one .npy file, which is mapped into memory. Its name is a hash of what it was
made from: the fingerprint of the folder and the resizing. The other splits of a benchmark, the next run and the next
model with the same resizing read it instead of decoding again. It is written chunk by chunk, so that memory does not
grow with the number of pictures, and gets its name only when it is complete.

Decoding uses threads and not processes: Pillow releases the interpreter lock while it decodes and resizes, so threads
keep all cores busy, and nothing is copied between processes. The file stores channels first, so that a batch is a copy
of whole rows and no picture has to be transposed again and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from predbn.common import DataError, Progress, cache_folder, lock_folder, map_threads, write_array_in_parts

from .batch import choose_positions
from .images import Images
from .npy import load_array
from .picture_content import open_picture
from .pictures import Listing, Pixels, ResizeCrop, list_pictures, read_picture

_FORMAT = 1
_CHUNK_BYTES = 2**26


def from_folder(
    path: str | Path,
    transform: ResizeCrop | None = None,
    *,
    images: int | None = None,
    progress: Progress | None = None,
) -> Images:
    """The pictures of a folder `<class>/<picture>`. Labels and index follow the sorted order of classes and pictures.

    Without a `transform` (`resize_crop`) all pictures must have the same height and width. All pictures are decoded
    once, into a file of the cache folder that later calls map into memory; a picture that cannot be read is an error
    before any image is returned. With `images`, only that many are decoded (`choose_positions`). `progress` is called
    with the number of decoded pictures and the total.
    """
    listing = list_pictures(Path(path))
    return images_of(listing, transform, name=listing.root.resolve().name, images=images, progress=progress)


def images_of(
    listing: Listing,
    transform: ResizeCrop | None,
    *,
    name: str,
    images: int | None = None,
    progress: Progress | None = None,
) -> Images:
    """The listed pictures as a data set; with `images`, only that many of them."""
    chosen = choose_positions(len(listing), images)
    listing = listing.take(chosen)
    pixels = decode(listing, transform, progress)
    return Images(pixels, listing.labels, chosen, listing.classes, name, tuple(listing.names))


def decode(listing: Listing, transform: ResizeCrop | None, progress: Progress | None = None) -> Tensor:
    """The pictures of a folder as uint8 [N, C, H, W], from the cache, or decoded into it first.

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
    shape = (len(listing), *((3, *array.shape[2:]) if transform is None else (transform.channels, *transform.size)))
    return array if array.dtype == np.uint8 and array.ndim == 4 and array.shape == shape else None


def _decode_to(path: Path, listing: Listing, transform: ResizeCrop | None, progress: Progress | None) -> None:
    height, width = _size_of_first(listing) if transform is None else transform.size
    channels = 3 if transform is None else transform.channels
    chunk_length = max(16, _CHUNK_BYTES // (channels * height * width))

    def read(start: int, chunk: Pixels, row: int) -> None:
        position = start + row
        pixels = read_picture(listing.path(position), transform)
        if pixels.shape[:2] != (height, width):
            raise DataError(
                f"{listing.path(position)} is {pixels.shape[0]}×{pixels.shape[1]} pixels, but {listing.path(0)} is "
                f"{height}×{width}: give a size to resize and crop all of them to (on the command line --size)."
            )
        cv2.split(pixels, list(chunk[row]))

    def chunks() -> Iterator[Pixels]:
        for start in range(0, len(listing), chunk_length):
            stop = min(start + chunk_length, len(listing))
            chunk = np.empty((stop - start, channels, height, width), np.uint8)
            map_threads(partial(read, start, chunk), range(stop - start))
            yield chunk
            if progress is not None:
                progress(stop, len(listing))

    write_array_in_parts(path, chunks(), dtype="|u1", row_shape=(channels, height, width))


def _size_of_first(listing: Listing) -> tuple[int, int]:
    """Height and width of the first picture, which all others must have."""
    with open_picture(listing.path(0)) as picture:
        return picture.height, picture.width
