"""A folder of pictures, one subfolder a class."""

from __future__ import annotations

from pathlib import Path

import torch

from .decoded import Report, decode
from .framing import Interpolation, frame
from .images import Images
from .listing import list_pictures

__all__ = ["from_folder"]


def from_folder(
    path: str | Path,
    size: int | tuple[int, int] | None = None,
    *,
    resize: int | None = None,
    interpolation: Interpolation = "bilinear",
    report: Report | None = None,
) -> Images:
    """The pictures of a folder `<class>/<picture>`; classes and pictures in sorted order give labels and index.

    Without `size` all must have the same height and width. With it, the shorter side of each is resized to `resize`
    pixels (unless given, to that of `size`) and the middle of that size is cut out; one that has the size stays as it
    is. All are decoded once, here, into a file of the cache folder that later calls map into memory; one that cannot
    be read is an error before any is handed out. `report` gets how many are done, and of how many.
    """
    framing = frame(size, resize, interpolation)
    listing = list_pictures(Path(path))
    pixels = decode(listing, framing, report)
    index = torch.arange(len(listing))
    return Images(pixels, listing.labels, index, listing.classes, listing.root.resolve().name)
