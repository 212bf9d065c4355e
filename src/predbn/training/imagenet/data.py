"""ImageNet's training images, augmented by worker processes, and its validation images, decoded once."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from predbn.common import Progress, TrainingError, end_with_parent
from predbn.data import DataError, Images, Listing, class_folders, from_folder, list_pictures, wnids
from predbn.models import Preprocessing

from .augmentation import read_crop


@dataclass(frozen=True)
class ImageNetData:
    """The images of a folder with `train` and `val`, each with files `<class>/<image>` of the same classes."""

    train: Listing
    validation: Images
    size: int

    def batches(
        self,
        *,
        seed: int,
        batch_size: int,
        epochs: int,
        start: tuple[int, int] = (0, 0),
        rank: int = 0,
        ranks: int = 1,
        workers: int = 0,
    ) -> Generator[tuple[Tensor, Tensor]]:
        """This process's share of every batch, uint8 images and labels, from `start` (epoch, step) to the last epoch.

        One iterator for all epochs: the worker processes start once and do not wait at the end of an epoch.
        """

        def batches_of_keys() -> Iterator[list[tuple[int, int]]]:
            """For every step, (epoch, index) of each image of this process."""
            first_step = start[1]
            for epoch in range(start[0], epochs):
                order = epoch_order(
                    len(self.train), seed=seed, epoch=epoch, batch_size=batch_size, rank=rank, ranks=ranks
                )
                for indices in order[first_step:]:
                    yield [(epoch, index) for index in indices.tolist()]
                first_step = 0

        loader = DataLoader(
            _AugmentedImages(self.train, self.size, seed),
            batch_sampler=batches_of_keys(),
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
            multiprocessing_context="forkserver" if workers else None,
            worker_init_fn=_start_worker,
        )
        try:
            yield from loader
        except DataError as error:  # from a worker process, the message contains a whole traceback
            raise TrainingError(str(error).strip().splitlines()[-1].rpartition("DataError: ")[2]) from None


def open_imagenet(
    root: str | Path, preprocessing: Preprocessing, *, subset: bool = False, progress: Progress | None = None
) -> ImageNetData:
    """Open a folder with `train` and `val`, and check their classes.

    They have to be ImageNet's 1,000, or any classes if `subset` is True.
    """
    root = Path(root)
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise TrainingError(f"Expected {root} to contain the folders train and val, but it has no {part!r}.")
    classes = class_folders(root / "train")
    if not subset:
        _check_classes(root / "train", classes, "ImageNet", wnids(), "unpack it again, or use --subset.")
    _check_classes(root / "val", class_folders(root / "val"), "train", classes, "unpack it again.")
    validation = from_folder(root / "val", preprocessing.crop, progress=progress)
    return ImageNetData(list_pictures(root / "train"), validation, preprocessing.size[0])


def _check_classes(folder: Path, classes: Sequence[str], other: str, expected: Sequence[str], remedy: str) -> None:
    differing = sorted(set(classes) ^ set(expected))
    if differing:
        where = folder if differing[0] in classes else other
        raise TrainingError(
            f"{folder} has {len(classes):,} classes and {other} has {len(expected):,}; {len(differing)} are in "
            f"one of them only, such as {differing[0]} in {where}: {remedy}"
        )


def epoch_order(count: int, *, seed: int, epoch: int, batch_size: int, rank: int = 0, ranks: int = 1) -> Tensor:
    """The images of a process in each step of an epoch, int64 [steps, batch_size / ranks].

    The order depends on the seed and the epoch. All processes together see the same batches as a single process. The
    images of the last, incomplete batch are dropped; they are others in each epoch.
    """
    if batch_size % ranks:
        raise TrainingError(f"Expected batch_size to be a multiple of the {ranks} processes, but got {batch_size}.")
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) & (2**63 - 1))
    steps = count // batch_size
    order = torch.randperm(count, generator=generator)[: steps * batch_size].view(steps, ranks, batch_size // ranks)
    return order[:, rank]


def _start_worker(number: int) -> None:
    """End with the training: PyTorch's watchdog watches the fork server, which survives this process."""
    end_with_parent()


class _AugmentedImages(Dataset[tuple[Tensor, int]]):
    """Training images by (epoch, index).

    File names are one array of bytes: a list of a million strings would be pickled to every worker one by one.
    """

    def __init__(self, listing: Listing, size: int, seed: int) -> None:
        self.root, self.size, self.seed = str(listing.root), size, seed
        self.names = np.array([os.fsencode(name) for name in listing.names])
        self.labels = listing.labels

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        epoch, index = key
        path = os.path.join(self.root, os.fsdecode(bytes(self.names[index])))
        pixels = read_crop(path, self.size, seed=self.seed, epoch=epoch, index=index)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), int(self.labels[index])
