"""A labelled set of pictures of one size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from predbn.common import DataError, map_ahead

from .batch import Batch, Device, Order, gather, pick, positions_of, steps_of

__all__ = ["Images", "sha256_of"]

_HASHED_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures held in memory, or mapped from a file that is read where they are used.

    `images` is uint8 [N, 3, H, W] (a view is welcome: batches are made contiguous), `labels` int64 [N] on the
    same device, numbers into `classes`; `index` int64 [N] on the CPU says which image each one is in the data
    set it was taken from, and stays with it through `take` and any order.
    """

    images: Tensor
    labels: Tensor
    index: Tensor
    classes: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        shape, count = tuple(self.images.shape), len(self.labels)
        if self.images.dtype != torch.uint8 or len(shape) != 4 or shape[1] != 3:
            raise DataError(f"{self.name}: images are {self.images.dtype} {shape}, but must be uint8 [N, 3, H, W].")
        for what, numbers in (("labels", self.labels), ("index", self.index)):
            if numbers.dtype != torch.int64 or tuple(numbers.shape) != shape[:1]:
                found = f"{numbers.dtype} {tuple(numbers.shape)}"
                raise DataError(f"{self.name}: {what} is {found}, but must be int64 [{shape[0]}], one an image.")
        if count and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            found = f"{int(self.labels.min())} to {int(self.labels.max())}"
            raise DataError(f"{self.name}: labels go from {found}, but there are {len(self.classes)} classes.")

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.labels)

    def __repr__(self) -> str:
        """Name, number and size."""
        height, width = self.images.shape[2:]
        return f"Images({self.name!r}, {len(self):,} of {height}×{width}, {len(self.classes)} classes)"

    @cached_property
    def sums(self) -> dict[str, str]:
        """SHA-256 of the decoded arrays as they are held: uint8 [N, 3, H, W] and int64 [N]."""
        return {"images": sha256_of(self.images), "labels": sha256_of(self.labels)}

    def take(self, which: int | Order) -> Images:
        """The first `which` images, or those at these positions, in that order."""
        if isinstance(which, int):
            if not 0 <= which <= len(self):
                raise DataError(f"{self.name} has {len(self)} images: {which} of them cannot be taken.")
            return replace(self, images=self.images[:which], labels=self.labels[:which], index=self.index[:which])
        positions = positions_of(which, len(self))
        place = self.images.device
        images, labels = pick(self.images, positions, place), pick(self.labels, positions, place)
        return replace(self, images=images, labels=labels, index=self.index[positions])

    def to(self, device: Device) -> Images:
        """The same images held on a device, where batches are then picked without a copy from the CPU."""
        place = torch.device(device)
        return replace(self, images=self.images.to(place), labels=self.labels.to(place))

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[Batch]:
        """Batches of at most `size` images, in the given order of positions or from first to last.

        An order that covers part of the images gives batches of these alone. They come on `device`, which is
        where the images are held unless it is given; for a GPU the rows of the next batch are gathered while
        the last one is used. What is done to a batch does not reach the data set.
        """
        place = self.images.device if device is None else torch.device(device)
        return self._walk(steps_of(order, len(self), size), place)

    def _walk(self, steps: list[Tensor], place: torch.device) -> Iterator[Batch]:
        def read(step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return gather(self.images, step, place), gather(self.labels, step, place), self.index[step]

        leaves = self.images.device.type != place.type
        for images, labels, index in map_ahead(read, steps) if leaves else map(read, steps):
            yield Batch(images.to(place, non_blocking=True), labels.to(place, non_blocking=True), index)


def sha256_of(tensor: Tensor) -> str:
    """SHA-256 of the values in their order, a piece at a time."""
    digest = hashlib.sha256()
    for piece in tensor.split(_HASHED_AT_ONCE):
        digest.update(piece.cpu().contiguous().numpy().data)
    return digest.hexdigest()
