"""A DataLoader of the user's as data: `loader:package.module:function`, for pictures prepared by the user's own code.

The function returns an iterable of batches: floats [N, C, H, W] as the network takes them, or pairs of them and labels.
They are read once, in the order in which they come, into a temporary file that is mapped into memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError, import_function, write_array_in_parts

from .images import UNLABELLED, Images
from .npy import check_labels, class_numbers, load_array

LOADER = "loader"

_folders: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Each removes its file when the process ends."""
_opened: dict[tuple[str, int | None], Images] = {}


def is_loader(reference: str) -> bool:
    """Whether a reference names a function that returns a DataLoader, `loader:module:function`."""
    return reference.partition(":")[0] == LOADER


def from_loader(reference: str, images: int | None = None, *, labelled: bool = True) -> Images:
    """What the loader of a reference yields; the first `images` of it, if that is given."""
    if (reference, images) not in _opened:
        _opened[reference, images] = _read(reference, images)
    opened = _opened[reference, images]
    if labelled and not opened.is_labelled:
        raise DataError(f"{reference} yields no labels: let it yield pairs (images, labels).")
    return opened


def example_of(reference: str) -> Tensor:
    """The first image of a loader, [C, H, W]."""
    images, _ = next(_batches(reference, _call(reference)), (None, None))
    if images is None:
        raise DataError(f"{reference} yields nothing: name a loader that has images.")
    return images[0]


def _call(reference: str) -> Iterable[Any]:
    _, _, function = reference.partition(":")
    loader = import_function(function, error=DataError)()
    if not isinstance(loader, Iterable):
        raise DataError(f"{reference} returned {type(loader).__name__}, but it must return a DataLoader.")
    return loader


def _batches(reference: str, loader: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Its batches, checked. Seeded, so that a loader that shuffles or augments yields the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for batch in loader:
            images, labels = batch[:2] if isinstance(batch, tuple | list) and len(batch) > 1 else (batch, None)
            images = images[0] if isinstance(images, tuple | list) and len(images) == 1 else images
            if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
                got = f"{images.dtype} {list(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
                raise DataError(
                    f"{reference} yields {got}, but must yield floats [N, channels, height, width] as the network "
                    "takes them, or pairs of them and labels."
                )
            yield images.detach().cpu().float(), None if labels is None else torch.as_tensor(labels).cpu()


def _read(reference: str, images: int | None) -> Images:
    loader = _call(reference)
    shape = tuple(example_of(reference).shape)
    labels: list[npt.NDArray[Any] | None] = []

    def parts() -> Iterator[npt.NDArray[Any]]:
        left = images
        for batch, its_labels in _batches(reference, loader):
            if tuple(batch.shape[1:]) != shape:
                raise DataError(f"{reference} yields images {list(batch.shape[1:])} after {list(shape)}: use one size.")
            batch = batch[:left]
            left = None if left is None else left - len(batch)
            labels.append(None if its_labels is None else its_labels.numpy()[: len(batch)])
            yield batch.numpy()
            if left == 0:
                return

    folder = tempfile.TemporaryDirectory(prefix="predbn-")
    _folders[folder.name] = folder
    path = Path(folder.name) / "images.npy"
    count = write_array_in_parts(path, parts(), dtype="<f4", row_shape=shape)
    is_labelled = all(part is not None for part in labels)
    classes: tuple[str, ...] = UNLABELLED
    numbers = torch.zeros(count, dtype=torch.int64)
    if is_labelled:
        numbers = check_labels(reference, np.concatenate([part for part in labels if part is not None]), count)
        names = getattr(getattr(loader, "dataset", None), "classes", None)
        classes = tuple(map(str, names)) if names else class_numbers(reference, numbers)
    return Images(torch.from_numpy(load_array(path)), numbers, torch.arange(count), classes, reference)
