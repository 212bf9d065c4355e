"""ImageNet-C as published: a folder of pictures for each corruption and severity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from predbn.common import DataError, map_ahead, map_threads

from .batch import Batch, Device, Order, pick, send, steps_of
from .framing import Framing, Interpolation, Pixels, frame, read_picture
from .listing import Listing, class_folders, list_pictures
from .shifted import SEVERITIES, check_split

__all__ = ["PUBLISHED", "ImageNetC"]

PUBLISHED = Framing((224, 224), resize=256)
"""How the authors of ImageNet-C framed the clean pictures."""


class ImageNetC:
    """A folder `<corruption>/<severity>/<class>/<picture>`.

    `names` lists the corruptions and `classes` the class folders in sorted order, which is that of the labels.
    Every split has the same pictures, sorted by class and name; that gives the index. `clean`, a folder
    `<class>/<picture>` of the originals, is the split "clean" with severity 0, framed as the published pictures were
    before they were corrupted: 224 × 224 pixels from 256.

    With a `size` all are framed for a model of that size: pictures which have it already stay as they are.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        clean: str | Path | None = None,
        size: int | tuple[int, int] | None = None,
        resize: int | None = None,
        interpolation: Interpolation = "bilinear",
    ) -> None:
        self.root, self.clean = Path(root), None if clean is None else Path(clean)
        self._framing = frame(size, resize, interpolation)
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a directory with the corruptions of ImageNet-C.")
        self.name = self.root.name
        self.names = sorted(p.name for p in self.root.iterdir() if (p / "1").is_dir())
        if not self.names:
            raise DataError(f"{self.root} has no <corruption>/<severity> folders; {_advice(self.root)}.")
        self._first = self.root / self.names[0] / "1"
        listing = list_pictures(self._first)
        self.classes, self.labels = listing.classes, listing.labels
        self._keys = _keys(listing)
        self.index = torch.arange(len(self.labels))
        self._check_classes()

    def __len__(self) -> int:
        """How many pictures a split has."""
        return len(self._keys)

    def _check_classes(self) -> None:
        """Every split has the classes of the first; without opening a picture, so that it costs next to nothing."""
        folders = [self.root / name / str(severity) for name in self.names for severity in SEVERITIES]
        for folder in folders if self.clean is None else [self.clean, *folders]:
            self._check_folder(folder)

    def _check_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(f"{folder} is missing; {self.root} has {', '.join(self.names)}, each at severities 1 to 5.")
        odd = sorted(set(class_folders(folder)) ^ set(self.classes))
        if odd:
            has = "has not" if odd[0] in self.classes else "has"
            raise DataError(
                f"{folder} {has} the class {odd[0]}, unlike {self._first} ({len(odd)} classes are in one of them "
                "only): some pictures are missing."
            )

    def split(self, name: str, severity: int) -> Listing:
        """The pictures of one corruption at one severity, sorted by class and name."""
        if check_split(name, severity):
            if self.clean is None:
                raise DataError(f"{self.root} has no clean pictures: give their folder as ImageNetC(root, clean=…).")
            folder = self.clean
        else:
            folder = self.root / name / str(severity)
        self._check_folder(folder)
        listing = list_pictures(folder)
        keys = _keys(listing)
        if keys != self._keys:
            odd = min(set(keys) ^ set(self._keys), default=keys[0])
            here, there = len(keys), len(self._keys)
            raise DataError(
                f"{folder} ({here} pictures) and {self._first} ({there}) are not of the same pictures: "
                f"{odd} is in one of them only."
            )
        return listing

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[Batch]:
        """Batches of at most `size` pictures of one split, in the given order of positions or the sorted one.

        The next batch is decoded on all cores while the model is at work on the last one.
        """
        place = torch.device("cpu" if device is None else device)
        framing = PUBLISHED if severity == 0 and self._framing is None else self._framing
        return self._walk(self.split(name, severity), framing, steps_of(order, len(self), size), place)

    def _walk(
        self, listing: Listing, framing: Framing | None, steps: list[Tensor], place: torch.device
    ) -> Iterator[Batch]:
        decoded = map_ahead(lambda step: (step, _read(listing, framing, step)), steps)
        for step, pixels in decoded:
            yield Batch(send(pixels, place), pick(self.labels, step, place), self.index[step])


def _read(listing: Listing, framing: Framing | None, step: Tensor) -> Pixels:
    """The pictures of one batch, [n, H, W, 3]."""
    paths = [listing.path(position) for position in step.tolist()]
    pixels = map_threads(lambda path: read_picture(path, framing), paths)
    odd = next((k for k, each in enumerate(pixels) if each.shape != pixels[0].shape), None)
    if odd is not None:
        sizes = [f"{each.shape[0]}×{each.shape[1]}" for each in (pixels[odd], pixels[0])]
        raise DataError(f"{paths[odd]} is {sizes[0]} pixels, but {paths[0]} is {sizes[1]}: replace it.")
    return np.stack(pixels)


def _advice(root: Path) -> str:
    """Where the corruptions are, as far as can be seen one level up or down."""
    place = root.resolve()
    levels = {str(severity) for severity in SEVERITIES}
    if levels & set(class_folders(root)):
        return f"it is one corruption: point at the folder above it, {place.parent}"
    if place.name in levels:
        return f"it is one severity: point at {place.parent.parent}"
    below = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and any(folder.glob("*/1"))]
    if below:
        others = f", and move those of {len(below) - 1} other folders there" if len(below) > 1 else ""
        return f"point at {below[0]}{others}"
    return "point at the folder that holds them"


def _keys(listing: Listing) -> list[str]:
    """What each picture is called in every split: the published ones are .JPEG, the originals may be anything."""
    return [name.rpartition(".")[0] for name in listing.names]
