"""Data to diagnose, by name. No labels are needed.

| name | data |
|---|---|
| `sample` | the embedded images of CIFAR-10: as a reference the validation part, otherwise the test part |
| `cifar10` | CIFAR-10 from the cache: as a reference the training part, otherwise the test part |
| a path that ends in .npy | an array uint8 [N, H, W, 3] or [N, 3, H, W] |
| a folder with `images.npy` | that array |
| any other folder | all pictures in it and in its subfolders, resized and cropped as the model needs them |
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
from predbn.data import Device, ImageBatch, Images, Order, batch_positions, cifar10, load_array, read_picture, sample
from predbn.data import pixels_to_device as send
from predbn.data import resize_crop as frame
from predbn.models import Preprocessing
from predbn.shifts import corrupt, find_corruption

from .diagnose import DataSet

Role = Literal["reference", "data"]

_ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def open_diagnosis_data(
    name: str,
    role: Role,
    preprocessing: Preprocessing,
    *,
    most: int | None = None,
    corruption: str | None = None,
    severity: int = 3,
    seed: int = 0,
) -> ImageSubset:
    """The data of a name: at most `most` random examples, corrupted if a corruption is given."""
    if corruption is not None:
        find_corruption(corruption)
        if severity not in (1, 2, 3, 4, 5):
            raise DiagnosticError(f"severity is {severity}, but {corruption} has the severities 1 to 5.")
    data = _open(name, role, preprocessing)
    count = len(data)
    if not count:
        raise DiagnosticError(f"{name} has no images: name data that has some.")
    positions = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: most or count]
    return ImageSubset(data, positions, corruption, severity if corruption else 0, seed)


@dataclass(frozen=True)
class ImageSubset:
    """Some of the images of a data set, corrupted when they are read if a corruption is given."""

    data: DataSet
    positions: torch.Tensor
    corruption: str | None = None
    severity: int = 0
    seed: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[ImageBatch]:
        """Batches of at most `size` examples, by default in the order of `positions`."""
        positions = self.positions if order is None else self.positions[torch.as_tensor(order)]
        for batch in self.data.batches(size, order=positions, device=device):
            yield batch if self.corruption is None else self._corrupt(batch, self.corruption)

    def _corrupt(self, batch: ImageBatch, corruption: str) -> ImageBatch:
        images = corrupt(batch.images, corruption, self.severity, seed=self.seed, index=batch.index)
        return batch._replace(images=images)


@dataclass(frozen=True)
class ImageFiles:
    """Image files that are decoded batch by batch, so that memory does not grow with their number."""

    paths: tuple[str, ...]
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.paths)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[ImageBatch]:
        """Batches of at most `size` images. All labels are 0, since there are none."""
        target = torch.device("cpu" if device is None else device)
        for positions in batch_positions(order, len(self), size):
            pixels = np.stack(map_threads(self._read, positions.tolist()))
            labels = torch.zeros(len(positions), dtype=torch.int64, device=target)
            yield ImageBatch(send(pixels, target), labels, positions)

    def _read(self, position: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        """Resize the shorter side and cut out the centre, as the model's preprocessing says."""
        p = self.preprocessing
        return read_picture(self.paths[position], frame(p.size, p.resize, p.interpolation))


def _open(name: str, role: Role, preprocessing: Preprocessing) -> DataSet:
    if name == "sample":
        return sample("validation" if role == "reference" else "test")
    if name == "cifar10":
        return cifar10("train" if role == "reference" else "test")
    path = Path(name).expanduser()
    if path.suffix == ".npy":
        return _open_array(path)
    if (path / "images.npy").is_file():
        return _open_array(path / "images.npy")
    if not path.is_dir():
        raise DiagnosticError(
            f"There is no data {name!r}: say sample, cifar10, a .npy file of images, or a folder of pictures."
        )
    paths = sorted(
        os.path.join(folder, file)
        for folder, _, files in os.walk(path)
        for file in files
        if file.lower().endswith(_ENDINGS) and not file.startswith(".")
    )
    if not paths:
        raise DiagnosticError(f"{path} has no pictures: name a folder with some ({', '.join(_ENDINGS)}).")
    return ImageFiles(tuple(paths), preprocessing)


def _open_array(path: Path) -> Images:
    array = load_array(path)
    if array.dtype != np.uint8 or array.ndim != 4 or 3 not in (array.shape[1], array.shape[3]):
        raise DiagnosticError(
            f"{path} is {array.dtype} {array.shape}, but must be uint8 (N, height, width, 3) or (N, 3, height, width)."
        )
    pixels = torch.from_numpy(array)
    pixels = pixels.permute(0, 3, 1, 2) if array.shape[3] == 3 else pixels
    labels = torch.zeros(len(array), dtype=torch.int64)
    return Images(pixels, labels, torch.arange(len(array)), ("unlabelled",), path.stem)
