"""The training images, augmented by worker processes; the validation images, decoded once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from predbn.common import TrainingError
from predbn.data import DataError, Images, Listing, class_folders, from_folder, list_pictures, wnids
from predbn.data import DecodingProgress as Report
from predbn.models import Preprocessing

from .crops import read_crop

__all__ = ["TrainingData", "open_data", "shares"]


@dataclass(frozen=True)
class TrainingData:
    """A folder with `train` and `val`, each `<class>/<picture>` with the same classes."""

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
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of every batch, uint8 images and labels, from `start` (epoch, step) to the last epoch.

        One stream for all epochs: worker processes start once, and do not run dry where an epoch ends.
        """
        loader = DataLoader(
            _Augmented(self.train, self.size, seed),
            batch_sampler=_Steps(len(self.train), seed, batch_size, epochs, start, rank, ranks),
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
            multiprocessing_context="forkserver" if workers else None,
        )
        try:
            yield from loader
        except DataError as error:  # a worker's comes with its traceback around it
            raise TrainingError(str(error).strip().splitlines()[-1].rpartition("DataError: ")[2]) from None


def open_data(
    root: str | Path, preprocessing: Preprocessing, *, subset: bool = False, report: Report | None = None
) -> TrainingData:
    """The folder's training and validation images; classes that are missing in either are named and counted.

    They must be ImageNet's 1,000 unless it is said to be a `subset`, which may be any classes.
    """
    root = Path(root)
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise TrainingError(f"{root} has no folder {part!r}: point at the folder that holds train and val.")
    classes = class_folders(root / "train")
    if not subset:
        _same_classes(root / "train", classes, "ImageNet", wnids(), "unpack it again, or say --subset.")
    _same_classes(root / "val", class_folders(root / "val"), "train", classes, "unpack it again.")
    validation = from_folder(
        root / "val",
        preprocessing.size,
        resize=preprocessing.resize,
        interpolation=preprocessing.interpolation,
        report=report,
    )
    return TrainingData(list_pictures(root / "train"), validation, preprocessing.size[0])


def _same_classes(folder: Path, found: Sequence[str], other: str, wanted: Sequence[str], remedy: str) -> None:
    odd = sorted(set(found) ^ set(wanted))
    if odd:
        where = folder if odd[0] in found else other
        raise TrainingError(
            f"{folder} has {len(found):,} classes and {other} {len(wanted):,}, of which {len(odd)} are in one of them "
            f"only, such as {odd[0]} in {where}: {remedy}"
        )


def shares(count: int, *, seed: int, epoch: int, batch_size: int, rank: int = 0, ranks: int = 1) -> Tensor:
    """Which images a process takes in each step of an epoch, int64 [steps, batch_size / ranks].

    The order follows from the seed and the epoch; the processes together see the batches that one alone would. The
    remainder that fills no batch is left out, another one each epoch.
    """
    if batch_size % ranks:
        raise TrainingError(f"A batch of {batch_size} cannot be shared by {ranks} processes: choose a multiple of it.")
    if count < batch_size:
        raise TrainingError(f"{count} training images do not fill a batch of {batch_size}.")
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) & (2**63 - 1))
    steps = count // batch_size
    order = torch.randperm(count, generator=generator)[: steps * batch_size].view(steps, ranks, batch_size // ranks)
    return order[:, rank]


@dataclass(frozen=True)
class _Steps:
    """For every step, the epoch and the number of each image that this process takes."""

    count: int
    seed: int
    batch_size: int
    epochs: int
    start: tuple[int, int]
    rank: int
    ranks: int

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        first = self.start[1]
        for epoch in range(self.start[0], self.epochs):
            steps = shares(
                self.count, seed=self.seed, epoch=epoch, batch_size=self.batch_size, rank=self.rank, ranks=self.ranks
            )
            for step in steps[first:]:
                yield [(epoch, index) for index in step.tolist()]
            first = 0


class _Augmented(Dataset[tuple[Tensor, int]]):
    """Names as one array of bytes: a list of a million strings would be copied into every worker, object by object."""

    def __init__(self, listing: Listing, size: int, seed: int) -> None:
        self.root, self.size, self.seed = str(listing.root), size, seed
        self.names = np.array([os.fsencode(name) for name in listing.names])
        self.labels = listing.labels

    def __getitem__(self, which: tuple[int, int]) -> tuple[Tensor, int]:
        epoch, index = which
        path = os.path.join(self.root, os.fsdecode(bytes(self.names[index])))
        pixels = read_crop(path, self.size, seed=self.seed, epoch=epoch, index=index)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), int(self.labels[index])
