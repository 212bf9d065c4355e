"""CIFAR-10-C as published: one array per corruption, with the five severities one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError

from .batch import Device, ImageBatch, Order, batch_positions, pixels_to_device, rows_to_device
from .cifar10_files import CLASSES
from .images import Images
from .npy import check_labels, class_numbers, load_array
from .shifted import SEVERITIES, check_split


class Cifar10C:
    """A folder with `labels.npy`, [5·N], and `<corruption>.npy`, uint8 [5·N, H, W, 3].

    The arrays stay on the disk until they are used. `names` lists the corruptions that the folder has. The clean images
    are not part of the published files; if they are given as `clean`, they are the split "clean" with severity 0.
    """

    def __init__(self, root: str | Path, *, clean: Images | None = None) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a directory with the .npy files of CIFAR-10-C.")
        self.name = self.root.name
        self.labels = self._read_labels()
        self.names = sorted(p.stem for p in self.root.glob("*.npy") if p.stem != "labels")
        if not self.names:
            raise DataError(f"{self.root} has labels.npy but no <corruption>.npy.")
        self.clean = clean
        if clean is None:
            numbers = class_numbers(self.root / "labels.npy", self.labels)
            self.index = torch.arange(len(self.labels))
            self.classes = CLASSES if len(numbers) <= len(CLASSES) else numbers
        else:
            if not torch.equal(clean.labels.cpu(), self.labels):
                raise DataError(
                    f"{clean.name} are not the clean images of {self.root}: the {len(clean)} and {len(self.labels)} "
                    "labels differ."
                )
            self.index, self.classes = clean.index, clean.classes

    def __len__(self) -> int:
        return len(self.labels)

    def split(self, name: str, severity: int) -> npt.NDArray[np.uint8]:
        """The images of one corruption at one severity, [N, H, W, 3], mapped from the file."""
        if check_split(name, severity):
            raise DataError(f"{self.root} has no clean images: give them as Cifar10C(root, clean=cifar10('test')).")
        if name not in self.names:
            raise DataError(f"{self.root} has no {name}.npy; it has {', '.join(self.names)}.")
        count = len(self)
        images = load_array(self.root / f"{name}.npy")
        if (
            images.dtype != np.uint8
            or images.ndim != 4
            or images.shape[3] != 3
            or len(images) != len(SEVERITIES) * count
        ):
            expected = f"uint8 ({len(SEVERITIES) * count}, height, width, 3)"
            raise DataError(f"{self.root / name}.npy is {images.dtype} {images.shape}, but it must be {expected}.")
        return images[(severity - 1) * count : severity * count]

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[ImageBatch]:
        """Batches of at most `size` images of one split, in an order of positions or from first to last."""
        if self.clean is not None and check_split(name, severity):
            return self.clean.batches(size, order=order, device=device)
        target = torch.device("cpu" if device is None else device)
        return self._read_batches(self.split(name, severity), batch_positions(order, len(self), size), target)

    def _read_batches(
        self, images: npt.NDArray[np.uint8], batches: list[Tensor], target: torch.device
    ) -> Iterator[ImageBatch]:
        for positions in batches:
            labels = rows_to_device(self.labels, positions, target)
            yield ImageBatch(pixels_to_device(images[positions.numpy()], target), labels, self.index[positions])

    def _read_labels(self) -> Tensor:
        path = self.root / "labels.npy"
        labels = load_array(path)
        if labels.ndim != 1 or not len(labels) or len(labels) % len(SEVERITIES):
            actual = f"{labels.dtype} {labels.shape}"
            raise DataError(f"{path} is {actual}, but must be integers, five times as many as images.")
        return check_labels(path, labels, len(labels))[: len(labels) // len(SEVERITIES)]
