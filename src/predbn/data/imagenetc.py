"""ImageNet-C as published: a folder of pictures for each corruption and severity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from predbn.shifts.sources import read_crop
from predbn.shifts.workers import map_threads

from .batch import Batch, Device, Order, pick, send, steps_of
from .errors import DataError
from .folder import list_classes, read_picture
from .shifted import check_split

__all__ = ["ImageNetC"]


class ImageNetC:
    """A folder `<corruption>/<severity>/<class>/<picture>`.

    `names` lists the corruptions and `classes` the class folders in sorted order, which is that of the labels.
    Every split has the same pictures, sorted by class and name; that gives the index. `clean`, a folder
    `<class>/<picture>` of the originals, is the split "clean" with severity 0, resized and cropped to the
    224 × 224 pixels of the benchmark.
    """

    def __init__(self, root: str | Path, *, clean: str | Path | None = None) -> None:
        self.root, self.clean = Path(root), None if clean is None else Path(clean)
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a directory with the corruptions of ImageNet-C.")
        self.name = self.root.name
        self.names = sorted(p.name for p in self.root.iterdir() if (p / "1").is_dir())
        if not self.names:
            raise DataError(
                f"{self.root} has no <corruption>/<severity> folders; point it at the folder that holds them."
            )
        self._first = self.root / self.names[0] / "1"
        self.classes, pictures = list_classes(self._first)
        self._keys = [_key(path) for path in pictures]
        number = {wnid: label for label, wnid in enumerate(self.classes)}
        self.labels = torch.tensor([number[wnid] for wnid, _ in self._keys])
        self.index = torch.arange(len(self.labels))

    def __len__(self) -> int:
        """How many pictures a split has."""
        return len(self._keys)

    def split(self, name: str, severity: int) -> list[Path]:
        """The pictures of one corruption at one severity, sorted by class and name."""
        if check_split(name, severity):
            if self.clean is None:
                raise DataError(f"{self.root} has no clean pictures: give their folder as ImageNetC(root, clean=…).")
            folder = self.clean
        else:
            folder = self.root / name / str(severity)
        if not folder.is_dir():
            raise DataError(f"{folder} is missing; {self.root} has {', '.join(self.names)}, each at severities 1 to 5.")
        classes, pictures = list_classes(folder)
        unknown = sorted(set(classes) - set(self.classes))
        if unknown:
            raise DataError(
                f"{folder} has the class {unknown[0]}, which {self._first} has not: some pictures are missing."
            )
        keys = [_key(path) for path in pictures]
        if keys != self._keys:
            wnid, stem = min(set(keys) ^ set(self._keys), default=keys[0])
            here, there = len(keys), len(self._keys)
            raise DataError(
                f"{folder} ({here} pictures) and {self._first} ({there}) are not of the same pictures: "
                f"{wnid}/{stem} is in one of them only."
            )
        return pictures

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[Batch]:
        """Batches of at most `size` pictures of one split, in the given order of positions or the sorted one."""
        place = torch.device("cpu" if device is None else device)
        return self._walk(self.split(name, severity), severity == 0, steps_of(order, len(self), size), place)

    def _walk(self, pictures: list[Path], clean: bool, steps: list[Tensor], place: torch.device) -> Iterator[Batch]:
        for step in steps:
            paths = [pictures[position] for position in step.tolist()]
            pixels = map_threads(_cropped if clean else read_picture, paths)
            odd = next((k for k, each in enumerate(pixels) if each.shape != pixels[0].shape), None)
            if odd is not None:
                sizes = [f"{each.shape[0]}×{each.shape[1]}" for each in (pixels[odd], pixels[0])]
                raise DataError(f"{paths[odd]} is {sizes[0]} pixels, but {paths[0]} is {sizes[1]}: replace it.")
            yield Batch(send(np.stack(pixels), place), pick(self.labels, step, place), self.index[step])


def _cropped(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return read_crop(str(path))


def _key(path: Path) -> tuple[str, str]:
    """What a picture is called in every split: the published ones are .JPEG, the originals may be anything."""
    return path.parent.name, path.stem
