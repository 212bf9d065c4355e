"""Labelled images of one size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from predbn.common import DataError, map_ahead

from .batch import Device, ImageBatch, Order, batch_positions, gather_rows, resolve_order, rows_to_device
from .class_map import ClassMap, labels_by_name

UNLABELLED = ("unlabelled",)
"""The classes of images without labels, whose labels are 0 and mean nothing."""

_HASH_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images in memory, or mapped from a file that is read when they are used.

    `images` is uint8 [N, C, H, W], or float32 if they are prepared already, and need not be contiguous; `labels` is
    int64 [N] on the same device, positions in `classes`; `index`, int64 [N] on the CPU, is the position of each image
    in its original data set, which `take` and the order of batches do not change. `files` are the names of the
    pictures, if they are from a folder.
    """

    images: Tensor
    labels: Tensor
    index: Tensor
    classes: tuple[str, ...]
    name: str
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape, count = tuple(self.images.shape), len(self.labels)
        is_nhwc = len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
        if self.images.dtype not in (torch.uint8, torch.float32) or len(shape) != 4 or is_nhwc:
            raise DataError(f"{self.name}: images are {self.images.dtype} {shape}, but must be uint8 [N, C, H, W].")
        for field, tensor in (("labels", self.labels), ("index", self.index)):
            if tensor.dtype != torch.int64 or tuple(tensor.shape) != shape[:1]:
                actual = f"{tensor.dtype} {tuple(tensor.shape)}"
                raise DataError(f"{self.name}: {field} is {actual}, but must be int64 [{shape[0]}], one per image.")
        if count and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            span = f"{int(self.labels.min())} to {int(self.labels.max())}"
            raise DataError(f"{self.name}: labels go from {span}, but there are {len(self.classes)} classes.")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        height, width = self.images.shape[2:]
        return f"Images({self.name!r}, {len(self):,} of {height}×{width}, {len(self.classes)} classes)"

    @property
    def is_prepared(self) -> bool:
        """Whether the images are what networks take, and not pixels."""
        return self.images.dtype != torch.uint8

    @property
    def is_labelled(self) -> bool:
        """Whether the labels mean something."""
        return self.classes != UNLABELLED

    def for_model(self, class_map: ClassMap | None, outputs: int) -> Images:
        """The same with labels that are numbers of a model's outputs (`labels_by_name`); without labels, itself."""
        if not self.is_labelled:
            return self
        labels, classes = labels_by_name(self.name, self.classes, self.labels.cpu(), class_map, outputs)
        return replace(self, labels=labels.to(self.labels.device), classes=classes)

    @cached_property
    def sums(self) -> dict[str, str]:
        """SHA-256 of the decoded images, [N, C, H, W], and of the labels, int64 [N]."""
        return {"images": sha256_of(self.images), "labels": sha256_of(self.labels)}

    def take(self, which: int | Order) -> Images:
        """The first `which` images, or the images at these positions in that order."""
        if isinstance(which, int):
            if not 0 <= which <= len(self):
                raise DataError(f"{self.name} has {len(self)} images: cannot take {which} of them.")
            parts = {name: getattr(self, name)[:which] for name in ("images", "labels", "index", "files")}
            return replace(self, **parts)
        positions, device = resolve_order(which, len(self)), self.images.device
        images = rows_to_device(self.images, positions, device)
        labels = rows_to_device(self.labels, positions, device)
        files = tuple(self.files[position] for position in positions.tolist()) if self.files else ()
        return replace(self, images=images, labels=labels, index=self.index[positions], files=files)

    def to(self, device: Device) -> Images:
        """The same images on a device, where batches are then made without a copy from the CPU."""
        target = torch.device(device)
        return replace(self, images=self.images.to(target), labels=self.labels.to(target))

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[ImageBatch]:
        """Batches of at most `size` images on `device` (by default that of the images).

        `order` gives the positions to visit, which may be a part of them; by default, all from first to last. If the
        batches go to another kind of device, the next one is gathered while the last one is used. A batch is a copy:
        changing it does not change the data set.
        """
        target = self.images.device if device is None else torch.device(device)
        return self._read_batches(batch_positions(order, len(self), size), target)

    def _read_batches(self, batches: list[Tensor], target: torch.device) -> Iterator[ImageBatch]:
        def gather(positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            images, labels = (gather_rows(tensor, positions, target) for tensor in (self.images, self.labels))
            return images, labels, self.index[positions]

        is_copied = self.images.device.type != target.type
        for images, labels, index in map_ahead(gather, batches) if is_copied else map(gather, batches):
            yield ImageBatch(images.to(target, non_blocking=True), labels.to(target, non_blocking=True), index)


def sha256_of(tensor: Tensor) -> str:
    """SHA-256 of the values of a tensor in their order; the layout in memory does not matter."""
    digest = hashlib.sha256()
    for chunk in tensor.split(_HASH_CHUNK):
        digest.update(chunk.cpu().contiguous().numpy().data)
    return digest.hexdigest()
