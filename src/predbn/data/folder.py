"""A folder of pictures, one subfolder a class."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from predbn.shifts.workers import map_threads

from .cache import cache_folder
from .errors import DataError
from .images import Images

__all__ = ["from_folder", "list_classes", "read_picture"]

_ENDINGS = {".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_AT_ONCE = 256
_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)

Report = Callable[[int, int], None]
Pixels = npt.NDArray[np.uint8]


def from_folder(path: str | Path, size: int | None = None, *, report: Report | None = None) -> Images:
    """The pictures of a folder `<class>/<picture>`; classes and pictures in sorted order give labels and index.

    Without `size` all must have the same height and width. With it, each is resized so that its shorter side
    has `size` pixels (bilinear, antialiased) and the square in its middle is taken. All are decoded once, here,
    into a nameless file in the cache folder that goes with the process, so that memory does not grow with
    their number; one that cannot be used is an error before any is handed out. `report` gets how many are
    done, and of how many.
    """
    root = Path(path)
    if size is not None and size < 1:
        raise DataError(f"size is {size}, but a picture has at least 1 pixel a side.")
    classes, pictures = list_classes(root)
    height, width = (size, size) if size is not None else _common_size(root, pictures)
    shape = (len(pictures), height, width, 3)
    images = _room(shape)
    broken: list[Path] = []

    def read(position: int) -> None:
        try:
            images[position] = read_picture(pictures[position], size)
        except DataError:
            broken.append(pictures[position])

    for start in range(0, len(pictures), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(pictures))
        map_threads(read, range(start, stop))
        if report is not None:
            report(stop, len(pictures))
    if broken:
        others = _and_more(len(broken), len(pictures))
        raise DataError(f"{min(broken)} cannot be read as a picture{others}: replace or remove what cannot be read.")
    number = {name: label for label, name in enumerate(classes)}
    labels = torch.tensor([number[picture.parent.name] for picture in pictures])
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    return Images(pixels, labels, torch.arange(len(labels)), classes, root.resolve().name)


def list_classes(root: Path) -> tuple[tuple[str, ...], list[Path]]:
    """The class folders and the pictures in them, both sorted; a class without a picture counts too."""
    if not root.is_dir():
        raise DataError(f"{root} is not a directory with one folder of pictures a class.")
    classes = tuple(sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")))
    pictures = [
        p for name in classes for p in sorted((root / name).iterdir()) if p.suffix.lower() in _ENDINGS and p.is_file()
    ]
    if not pictures:
        raise DataError(f"{root} has no pictures in class folders, as <class>/<picture>.png.")
    return classes, pictures


def read_picture(path: Path, size: int | None = None) -> Pixels:
    """A picture [H, W, 3]; with a size, its middle square after resizing the shorter side to it."""
    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read as a picture ({error}): replace it.") from None
    if size is not None and picture.size != (size, size):
        scale = size / min(picture.size)
        width, height = (max(size, round(side * scale)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - size) // 2, (height - size) // 2
        picture = picture.crop((left, top, left + size, top + size))
    return np.asarray(picture)


def _common_size(root: Path, pictures: list[Path]) -> tuple[int, int]:
    """Height and width of all the pictures, from their heads alone; others than most are named and counted."""

    def measure(path: Path) -> tuple[int, int] | None:
        try:
            with Image.open(path) as picture:
                return picture.height, picture.width
        except _UNREADABLE:
            return None

    sizes = list(zip(pictures, map_threads(measure, pictures), strict=True))
    unreadable = [path for path, found in sizes if found is None]
    if unreadable:
        others = _and_more(len(unreadable), len(pictures))
        raise DataError(f"{unreadable[0]} cannot be read as a picture{others}: replace or remove what cannot be read.")
    found = [(path, size) for path, size in sizes if size is not None]
    usual, times = Counter(size for _, size in found).most_common(1)[0]
    other = [(path, size) for path, size in found if size != usual]
    if other:
        path, (height, width) = other[0]
        raise DataError(
            f"{path} is {height}×{width} pixels where {times} of the {len(pictures)} pictures in {root} are "
            f"{usual[0]}×{usual[1]}, and {len(other)} are not: give a size to resize and crop all to."
        )
    return usual


def _and_more(count: int, total: int) -> str:
    return f" (and {count - 1} more of {total})" if count > 1 else f" (of {total}, the only one)"


def _room(shape: tuple[int, ...]) -> Pixels:
    """A writable array on the disk whose file has no name, so that no crash can leave it behind."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            return np.memmap(file, np.uint8, "w+", shape=shape)
    except OSError as error:
        raise DataError(
            f"{folder} has no room for {np.prod(shape, dtype=np.int64):,} bytes of decoded pictures "
            f"({error.strerror or error}): set PREDBN_CACHE to a folder that has."
        ) from None
