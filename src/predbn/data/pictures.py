"""Picture files: listing a folder of class folders, decoding, and resizing to the size that a network takes."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from predbn.common import DataError, map_ahead, map_threads

from .batch import Device, ImageBatch, pixels_to_device, rows_to_device
from .picture_content import as_pixels, check_memory, open_picture
from .reading import readable

Interpolation = Literal["bilinear", "bicubic", "lanczos", "nearest"]
Pixels = npt.NDArray[np.uint8]

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

OTHER_SUFFIXES = (".avif", ".gif", ".heic", ".heif", ".jp2", ".jxl", ".pbm", ".pgm", ".svg", ".tga")
"""Unsupported formats. They are an error: without these pictures it would be another data set."""


@dataclass(frozen=True)
class ResizeCrop:
    """Resize the shorter side to `resize` pixels, then crop the centre of `size` (height, width).

    Pictures are decoded as RGB, or as grey values with one of the `channels`.

    Sides are rounded as in torchvision and timm, because published accuracies were measured with these: the longer
    side down, the margin to the nearest even number. A picture that already has the size is not changed, since it has
    been resized and cropped before, like those of ImageNet-C.
    """

    size: tuple[int, int]
    resize: int
    interpolation: Interpolation = "bilinear"
    channels: int = 3

    def __call__(self, picture: Image.Image) -> Image.Image:
        height, width = self.size
        if picture.size == (width, height):
            return picture
        full_width, full_height = self.resized(*picture.size)
        resampling = Image.Resampling[self.interpolation.upper()]
        left, top = round((full_width - width) / 2), round((full_height - height) / 2)
        return picture.resize((full_width, full_height), resampling).crop((left, top, left + width, top + height))

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of a picture of this size after it is resized and before it is cropped."""
        shorter = min(width, height)
        sides = [int(self.resize * side / shorter) for side in (width, height)]
        # If `size` is not square, the longer side may still be too short for it: then enlarge both.
        enlarge = max(1.0, self.size[1] / sides[0], self.size[0] / sides[1])
        return round(sides[0] * enlarge), round(sides[1] * enlarge)


def resize_crop(
    size: int | tuple[int, int],
    resize: int | None = None,
    interpolation: Interpolation = "bilinear",
    channels: int = 3,
) -> ResizeCrop:
    """The checked `ResizeCrop` for these arguments.

    One number means a square. By default the shorter side is resized to that of `size`, which keeps as much of the
    picture as possible.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise DataError(f"size is {size}, but a picture has at least 1 pixel per side.")
    shorter = min(height, width) if resize is None else resize
    if shorter < min(height, width):
        raise DataError(
            f"resize is {resize}, but {min(height, width)} pixels are then cropped from it: make it larger."
        )
    if interpolation not in get_args(Interpolation):
        raise DataError(f"interpolation is {interpolation!r}, but must be one of {', '.join(get_args(Interpolation))}.")
    return ResizeCrop((height, width), shorter, interpolation, channels)


def read_picture(path: str | Path, transform: ResizeCrop | None = None) -> Pixels:
    """The pixels of a picture file, [H, W, channels], resized and cropped if there is a transform."""
    with open_picture(path) as opened:
        if transform is not None:
            # A picture of 1 × 100,000 pixels becomes one of 256 × 25,600,000.
            check_memory(path, 3 * math.prod(transform.resized(*opened.size)))
        picture = as_pixels(opened, 3 if transform is None else transform.channels)
    pixels = np.asarray(picture if transform is None else transform(picture))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def read_pictures(paths: Sequence[str], transform: ResizeCrop | None = None) -> Pixels:
    """The pixels of several picture files of one size, [n, H, W, channels], decoded on all cores."""
    pixels = map_threads(lambda path: read_picture(path, transform), paths)
    for path, array in zip(paths, pixels, strict=True):
        if array.shape != pixels[0].shape:
            size, first_size = (f"{height}×{width}" for height, width, *_ in (array.shape, pixels[0].shape))
            raise DataError(f"{path} is {size} pixels, but {paths[0]} is {first_size}: replace it.")
    return np.stack(pixels)


def read_batches(
    path_of: Callable[[int], str],
    batches: Sequence[Tensor],
    transform: ResizeCrop | None,
    labels: Tensor,
    device: Device | None,
) -> Iterator[ImageBatch]:
    """Batches of pictures at these positions. The next one is decoded on all cores while the last one is used."""
    target = torch.device("cpu" if device is None else device)

    def read(positions: Tensor) -> tuple[Tensor, Pixels]:
        return positions, read_pictures([path_of(position) for position in positions.tolist()], transform)

    for positions, pixels in map_ahead(read, batches):
        yield ImageBatch(pixels_to_device(pixels, target), rows_to_device(labels, positions, target), positions)


@dataclass(frozen=True, eq=False)
class Listing:
    """The pictures of a folder, by class and by name within each class: `names[i]` is `<class>/<picture>`.

    `labels`, int64 [N], are positions in `classes`. A class may be empty.
    """

    root: Path
    classes: tuple[str, ...]
    names: list[str]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.names)

    def path(self, position: int) -> str:
        return os.path.join(self.root, self.names[position])

    def take(self, positions: Tensor) -> Listing:
        """The pictures at these positions, in that order."""
        names = [self.names[position] for position in positions.tolist()]
        return replace(self, names=names, labels=self.labels[positions])

    def fingerprint(self) -> str:
        """SHA-256 of all names, sizes and modification times; it changes if a picture is added, removed or changed."""
        digest = hashlib.sha256()
        for position, name in enumerate(self.names):
            with readable(self.path(position)):
                status = os.stat(self.path(position))
            digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def class_folders(root: Path) -> list[str]:
    """The names of the folders directly below, sorted, without hidden ones."""
    if not root.is_dir():
        raise DataError(f"{root} is not a directory with one folder of pictures per class.")
    with readable(root), os.scandir(root) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in shown:
        _check_link(entry)
    return sorted(entry.name for entry in shown if entry.is_dir())


def list_pictures(root: Path, classes: Sequence[str] | None = None) -> Listing:
    """The pictures of these class folders in that order; by default, of all folders in sorted order.

    A picture beside the class folders, or in a folder inside of one, is an error: it would silently be left out.
    """
    class_names = tuple(class_folders(root) if classes is None else classes)
    names: list[str] = []
    labels: list[int] = []
    others = [root]
    for label, class_name in enumerate(class_names):
        files, folders = pictures_in(root / class_name)
        others += [root / class_name / folder for folder in folders]
        names.extend(f"{class_name}/{file}" for file in files)
        labels.extend([label] * len(files))
    if not names:
        raise DataError(
            f"{root} has no pictures in class folders, as <class>/<picture>.png: accuracy needs labels. Pictures "
            "without labels can be compared with a reference (on the command line --reference and --unlabelled)."
        )
    for folder in others:
        for stray in pictures_in(folder)[0]:
            raise DataError(f"{folder / stray} is not directly in a class folder: move it into one, or elsewhere.")
    return Listing(root, class_names, names, torch.tensor(labels))


def is_picture(name: str) -> bool:
    """Whether a file has the suffix of a picture. Hidden files, such as the `._*` of macOS, do not count."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def check_kind(path: str) -> None:
    """Raise an error if the suffix is that of an unsupported picture format."""
    if path.lower().endswith(OTHER_SUFFIXES) and not os.path.basename(path).startswith("."):
        raise DataError(
            f"{path} has an unsupported picture format: convert it to one of {', '.join(SUFFIXES)}, or move it "
            "elsewhere."
        )


def pictures_in(folder: Path) -> tuple[list[str], list[str]]:
    """The names of the pictures and of the folders directly in a folder, sorted, without hidden ones."""
    names, folders = [], []
    with readable(folder), os.scandir(folder) as entries:
        for entry in entries:
            check_kind(entry.path)
            if is_picture(entry.name):
                _check_link(entry)
                if entry.is_file():
                    names.append(entry.name)
            elif entry.is_dir() and not entry.name.startswith("."):
                folders.append(entry.name)
    return sorted(names), sorted(folders)


def _check_link(entry: os.DirEntry[str]) -> None:
    """Raise an error if an entry of a folder is a link to something that does not exist."""
    if entry.is_symlink() and not os.path.exists(entry.path):
        raise DataError(f"{entry.path} is a link to {os.readlink(entry.path)}, which does not exist: fix or remove it.")
