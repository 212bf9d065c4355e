"""CIFAR-10-C as published: one array a corruption, the five severities one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .errors import DataError

__all__ = ["Cifar10C"]

SEVERITIES = 5


class Cifar10C:
    """A folder with `labels.npy`, [5·N], and `<corruption>.npy`, uint8 [5·N, H, W, 3].

    The arrays stay on the disk until they are read. `names` lists the corruptions that are there.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a directory with the .npy files of CIFAR-10-C.")
        labels = self._load("labels")
        if (
            labels.ndim != 1
            or not len(labels)
            or len(labels) % SEVERITIES
            or not np.issubdtype(labels.dtype, np.integer)
        ):
            found = f"{labels.dtype} {labels.shape}"
            raise DataError(
                f"{self.root / 'labels.npy'} is {found}, but it holds whole numbers, five times as many as images."
            )
        self.count = len(labels) // SEVERITIES
        self.labels = torch.from_numpy(labels[: self.count].astype(np.int64))
        self.names = sorted(p.stem for p in self.root.glob("*.npy") if p.stem != "labels")
        if not self.names:
            raise DataError(f"{self.root} has labels.npy but no <corruption>.npy beside it.")

    def __len__(self) -> int:
        """How many images a split has."""
        return self.count

    def split(self, name: str, severity: int) -> npt.NDArray[np.uint8]:
        """The images of one corruption at one severity, [N, H, W, 3], on the disk."""
        if severity not in range(1, SEVERITIES + 1):
            raise DataError(f"severity is {severity!r}, but CIFAR-10-C has 1 to 5.")
        if name not in self.names:
            raise DataError(f"{self.root} has no {name}.npy; it has {', '.join(self.names)}.")
        images = self._load(name)
        if (
            images.dtype != np.uint8
            or images.ndim != 4
            or images.shape[3] != 3
            or len(images) != SEVERITIES * self.count
        ):
            wanted = f"uint8 ({SEVERITIES * self.count}, height, width, 3)"
            raise DataError(f"{self.root / name}.npy is {images.dtype} {images.shape}, but it must be {wanted}.")
        return images[(severity - 1) * self.count : severity * self.count]

    def batches(self, name: str, severity: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of at most `size` images, uint8 [n, 3, H, W], and their labels, in the published order."""
        images = self.split(name, severity)
        for start in range(0, self.count, size):
            piece = torch.from_numpy(np.array(images[start : start + size]))
            yield piece.permute(0, 3, 1, 2).contiguous(), self.labels[start : start + size]

    def _load(self, name: str) -> npt.NDArray[Any]:
        path = self.root / f"{name}.npy"
        try:
            loaded: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise DataError(f"{path} is missing; CIFAR-10-C has labels.npy and one .npy a corruption.") from None
        except (OSError, ValueError, EOFError) as error:
            raise DataError(
                f"{path} cannot be read as a .npy file ({error}); it may be cut off: get it again."
            ) from None
        return loaded
