"""CIFAR-10-C as published: one array a corruption, the five severities one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError

from .batch import Batch, Device, Order, pick, send, steps_of
from .cifar10_sums import CLASSES
from .images import Images
from .npy import load_array
from .shifted import SEVERITIES, check_split

__all__ = ["Cifar10C"]


class Cifar10C:
    """A folder with `labels.npy`, [5·N], and `<corruption>.npy`, uint8 [5·N, H, W, 3].

    The arrays stay on the disk until they are read. `names` lists the corruptions that are there. The clean
    images are not part of the published files: given here, they are the split "clean" with severity 0.
    """

    def __init__(self, root: str | Path, *, clean: Images | None = None) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a directory with the .npy files of CIFAR-10-C.")
        self.name = self.root.name
        self.labels = self._labels()
        self.names = sorted(p.stem for p in self.root.glob("*.npy") if p.stem != "labels")
        if not self.names:
            raise DataError(f"{self.root} has labels.npy but no <corruption>.npy beside it.")
        self.clean = clean
        if clean is None:
            most = int(self.labels.max()) + 1
            self.index = torch.arange(len(self.labels))
            self.classes = CLASSES if most <= len(CLASSES) else tuple(str(label) for label in range(most))
        else:
            if not torch.equal(clean.labels.cpu(), self.labels):
                raise DataError(
                    f"{clean.name} are not the clean images of {self.root}: the {len(clean)} and {len(self.labels)} "
                    "labels differ."
                )
            self.index, self.classes = clean.index, clean.classes

    def __len__(self) -> int:
        """How many images a split has."""
        return len(self.labels)

    def split(self, name: str, severity: int) -> npt.NDArray[np.uint8]:
        """The images of one corruption at one severity, [N, H, W, 3], on the disk."""
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
            wanted = f"uint8 ({len(SEVERITIES) * count}, height, width, 3)"
            raise DataError(f"{self.root / name}.npy is {images.dtype} {images.shape}, but it must be {wanted}.")
        return images[(severity - 1) * count : severity * count]

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[Batch]:
        """Batches of at most `size` images of one split, in the given order of positions or the published one."""
        if self.clean is not None and check_split(name, severity):
            return self.clean.batches(size, order=order, device=device)
        place = torch.device("cpu" if device is None else device)
        return self._walk(self.split(name, severity), steps_of(order, len(self), size), place)

    def _walk(self, images: npt.NDArray[np.uint8], steps: list[Tensor], place: torch.device) -> Iterator[Batch]:
        for step in steps:
            labels = pick(self.labels, step, place)
            yield Batch(send(images[step.numpy()], place), labels, self.index[step])

    def _labels(self) -> Tensor:
        path = self.root / "labels.npy"
        labels = load_array(path)
        if (
            labels.ndim != 1
            or not len(labels)
            or len(labels) % len(SEVERITIES)
            or not np.issubdtype(labels.dtype, np.integer)
        ):
            found = f"{labels.dtype} {labels.shape}"
            raise DataError(f"{path} is {found}, but it holds whole numbers, five times as many as images.")
        return torch.from_numpy(labels[: len(labels) // len(SEVERITIES)].astype(np.int64))
