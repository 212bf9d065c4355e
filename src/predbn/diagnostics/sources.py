"""Data to diagnose, by one word: no labels are needed.

| word | what it is |
|---|---|
| `sample` | the embedded images of CIFAR-10: the validation part for a reference, the test part for the data |
| `cifar10` | CIFAR-10 from the cache: the training part for a reference, the test part for the data |
| a path that ends in .npy | an array uint8 [N, H, W, 3] or [N, 3, H, W]; for a folder with `images.npy`, that one |
| any other folder | all pictures in it and in its subfolders, resized and cropped as the model wants them |
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from predbn.common import DiagnosticError, map_threads
from predbn.data import Batch, Device, Images, Order, cifar10, load_array, read_picture, sample, steps_of
from predbn.data import frame_picture as frame
from predbn.data import send_to_device as send
from predbn.models import Preprocessing
from predbn.shifts import corrupt
from predbn.shifts import find_corruption as find

from .diagnose import Batched

__all__ = ["Pictures", "Shown", "open_data"]

Role = Literal["reference", "data"]

_ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Pictures:
    """Picture files, decoded batch by batch when they are asked for, so that memory does not grow with them."""

    paths: tuple[str, ...]
    preprocessing: Preprocessing

    def __len__(self) -> int:
        """How many pictures there are."""
        return len(self.paths)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[Batch]:
        """Batches of at most `size` pictures, with labels that mean nothing."""
        place = torch.device("cpu" if device is None else device)
        for step in steps_of(order, len(self), size):
            pixels = np.stack(map_threads(self._read, step.tolist()))
            yield Batch(send(pixels, place), torch.zeros(len(step), dtype=torch.int64, device=place), step)

    def _read(self, position: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        """The shorter side resized, then the centre cut out, as the model's preprocessing says."""
        wanted = self.preprocessing
        return read_picture(self.paths[position], frame(wanted.size, wanted.resize, wanted.interpolation))


@dataclass(frozen=True)
class Shown:
    """A part of a data set, drawn once, under a corruption where one is named."""

    whole: Batched
    positions: torch.Tensor
    corruption: str | None = None
    severity: int = 0
    seed: int = 0

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.positions)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[Batch]:
        """Batches of at most `size` examples in an order of positions."""
        chosen = self.positions if order is None else self.positions[torch.as_tensor(order)]
        for batch in self.whole.batches(size, order=chosen, device=device):
            yield batch if self.corruption is None else self._corrupt(batch, self.corruption)

    def _corrupt(self, batch: Batch, name: str) -> Batch:
        return batch._replace(images=corrupt(batch.images, name, self.severity, seed=self.seed, index=batch.index))


def open_data(
    word: str,
    role: Role,
    preprocessing: Preprocessing,
    *,
    most: int | None = None,
    corruption: str | None = None,
    severity: int = 3,
    seed: int = 0,
) -> Shown:
    """The data that a word names: at most `most` examples, drawn at random, under a corruption where one is named."""
    if corruption is not None:
        find(corruption)
        if severity not in (1, 2, 3, 4, 5):
            raise DiagnosticError(f"severity is {severity}, but {corruption} has the severities 1 to 5.")
    whole = _open(word, role, preprocessing)
    count = len(whole)
    if not count:
        raise DiagnosticError(f"{word} has no images: name data that has some.")
    positions = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: most or count]
    return Shown(whole, positions, corruption, severity if corruption else 0, seed)


def _open(word: str, role: Role, preprocessing: Preprocessing) -> Batched:
    if word == "sample":
        return sample("validation" if role == "reference" else "test")
    if word == "cifar10":
        return cifar10("train" if role == "reference" else "test")
    path = Path(word).expanduser()
    if path.suffix == ".npy":
        return _array(path)
    if (path / "images.npy").is_file():
        return _array(path / "images.npy")
    if not path.is_dir():
        raise DiagnosticError(
            f"There is no data {word!r}: say sample, cifar10, a .npy file of images, or a folder of pictures."
        )
    paths = sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in names
        if name.lower().endswith(_ENDINGS) and not name.startswith(".")
    )
    if not paths:
        raise DiagnosticError(f"{path} has no pictures: name a folder with some ({', '.join(_ENDINGS)}).")
    return Pictures(tuple(paths), preprocessing)


def _array(path: Path) -> Images:
    array = load_array(path)
    if array.dtype != np.uint8 or array.ndim != 4 or 3 not in (array.shape[1], array.shape[3]):
        found = f"{array.dtype} {array.shape}"
        raise DiagnosticError(f"{path} is {found}, but must be uint8 (N, height, width, 3) or (N, 3, height, width).")
    pixels = torch.from_numpy(array)
    pixels = pixels.permute(0, 3, 1, 2) if array.shape[3] == 3 else pixels
    unlabelled = torch.zeros(len(array), dtype=torch.int64)
    return Images(pixels, unlabelled, torch.arange(len(array)), ("unlabelled",), path.stem)
