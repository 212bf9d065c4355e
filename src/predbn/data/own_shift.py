"""Reference pictures and new, possibly shifted pictures, with or without labels, in order of arrival.

The order decides which pictures share a batch. Cameras number their pictures or name them after the time, so pictures
of a folder are sorted by file name, whichever class folder they are in, with numbers compared as numbers. Sorted class
by class, as folders are listed otherwise, a batch would hold a single class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from predbn.common import DataError, Progress

from .batch import Device, ImageBatch, Order, batch_positions
from .class_map import ClassMap, number_classes
from .folder import images_of
from .images import UNLABELLED, Images
from .loader import from_loader, is_loader
from .npy import from_npy
from .pictures import Listing, ResizeCrop, class_folders, list_pictures, pictures_in, read_batches
from .references import IMAGENET_SETS, open_images, pictures_below, unlabelled_array


@dataclass(frozen=True, eq=False)
class ReferenceAndData:
    """The reference data and the new data. If both have labels, they are positions in the same classes."""

    reference: Images
    data: Images

    def __post_init__(self) -> None:
        for name, images in (("reference", self.reference), ("data", self.data)):
            if not len(images):
                raise DataError(f"the {name} has no pictures: name a folder that has some.")

    @property
    def name(self) -> str:
        """Both names, for messages and cards."""
        return f"{self.reference.name} and {self.data.name}"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of those that have labels; empty if neither has."""
        both = (images.classes for images in (self.data, self.reference) if images.is_labelled)
        return tuple(dict.fromkeys(name for names in both for name in names))

    def for_model(self, class_map: ClassMap | None, outputs: int) -> ReferenceAndData:
        """The same with labels that are numbers of a model's outputs.

        Without a class map the reference must have a folder for each output, whose sorted order is that of the outputs,
        as usual in training; the classes of the data are then found among these by name.
        """
        if class_map is None and self.reference.is_labelled and len(self.reference.classes) == outputs:
            class_map = number_classes(self.reference.name, self.reference.classes)
        return ReferenceAndData(*(images.for_model(class_map, outputs) for images in (self.reference, self.data)))


def open_reference_and_data(
    reference: str, data: str, *, unlabelled: bool = False, images: int | None = None, **options: Any
) -> ReferenceAndData:
    """Both by reference; `unlabelled` and `images` are about the data, and the options are those of `open_in_order`."""
    return ReferenceAndData(
        open_in_order(reference, "validation", **options),
        open_in_order(data, "test", unlabelled=unlabelled, images=images, **options),
    )


def open_in_order(
    reference: str,
    part: str,
    *,
    unlabelled: bool = False,
    transform: ResizeCrop | None = None,
    images: int | None = None,
    progress: Progress | None = None,
) -> Images:
    """Pictures in order of arrival; the first `images` of them, if that is given.

    A folder of class folders has labels, unless they are `unlabelled`; one with pictures directly inside has none, nor
    has a .npy file, nor a folder with images.npy and without labels.npy. Other data sets are those of `open_images`.
    """
    path = Path(reference).expanduser()
    if is_loader(reference):
        opened = from_loader(reference, images, labelled=False)
    elif (path / "images.npy").is_file() and (path / "labels.npy").is_file():
        opened = from_npy(path)
    elif (array := unlabelled_array(path)) is not None:
        opened = array
    elif path.is_dir() and reference.partition(":")[0] not in IMAGENET_SETS:
        listing = _list_in_order(path, unlabelled=unlabelled)
        first = listing.take(torch.arange(len(listing) if images is None else min(images, len(listing))))
        return images_of(first, transform, name=path.resolve().name, progress=progress)
    else:
        opened = open_images(reference, part, transform=transform, progress=progress)
    if unlabelled:
        opened = replace(opened, labels=torch.zeros_like(opened.labels), classes=UNLABELLED)
    return opened if images is None else opened.take(min(images, len(opened)))


@dataclass(frozen=True)
class PictureFiles:
    """Picture files without labels, decoded batch by batch, so that memory does not grow with their number."""

    paths: tuple[str, ...]
    transform: ResizeCrop | None

    def __len__(self) -> int:
        return len(self.paths)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[ImageBatch]:
        """Batches of at most `size` pictures; all labels are 0 and mean nothing."""
        positions, labels = batch_positions(order, len(self), size), torch.zeros(len(self), dtype=torch.int64)
        return read_batches(self.paths.__getitem__, positions, self.transform, labels, device)


def open_unlabelled(
    reference: str, part: str, *, transform: ResizeCrop | None = None, images: int | None = None
) -> Images | PictureFiles:
    """Images by reference of which no labels are needed; of a loader, the first `images`.

    Of a folder all pictures are used, also those in its subfolders, and decoded when they are needed.
    """
    path = Path(reference).expanduser()
    if path.is_dir() and not (path / "images.npy").is_file() and reference not in ("sample", "cifar10"):
        return PictureFiles(tuple(pictures_below(path)), transform)
    return open_in_order(reference, part, unlabelled=True, images=images if is_loader(reference) else None)


def _list_in_order(root: Path, *, unlabelled: bool) -> Listing:
    """The pictures of a folder by file name, with labels if they are in class folders."""
    direct, folders = pictures_in(root)
    is_labelled = bool(folders) and not direct and not unlabelled
    if direct and any(pictures_in(root / folder)[0] for folder in folders) and not unlabelled:
        raise DataError(
            f"{root} has pictures both directly and in folders: if the folders are classes, move the pictures into "
            "them; if not, add --unlabelled, and all are read without labels."
        )
    if is_labelled:
        listing = list_pictures(root, class_folders(root))
    else:
        names = [str(Path(path).relative_to(root)) for path in pictures_below(root)]
        listing = Listing(root, UNLABELLED, names, torch.zeros(len(names), dtype=torch.int64))
    order = sorted(range(len(listing)), key=lambda position: natural_key(listing.names[position], by_file=is_labelled))
    return listing.take(torch.tensor(order))


def natural_key(name: str, *, by_file: bool) -> tuple[object, ...]:
    """Sorts picture2.png before picture10.png; with `by_file`, by the name of the file before that of its folder."""
    folder, _, file = name.rpartition("/")
    parts = (file, folder) if by_file else (folder, file)
    return tuple(_numbers_as_numbers(part) for part in parts)


def _numbers_as_numbers(text: str) -> list[tuple[int, int, str]]:
    """The text in pieces that compare as wanted: numbers by value and before letters."""
    pieces = re.findall(r"(\d+)|(\D+)", text.lower())
    return [(0, int(digits), "") if digits else (1, 0, letters) for digits, letters in pieces]
