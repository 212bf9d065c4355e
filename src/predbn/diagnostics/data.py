"""Data to diagnose, by reference as in `predbn.data.open_unlabelled`. No labels are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from predbn.common import DataError
from predbn.data import SEVERITIES, Device, ImageBatch, Images, Order, PictureFiles, open_unlabelled
from predbn.models import Preprocessing
from predbn.shifts import corrupt, find_corruption

Role = Literal["reference", "data"]


def open_diagnosis_data(
    reference: str,
    role: Role,
    preprocessing: Preprocessing,
    *,
    most: int | None = None,
    corruption: str | None = None,
    severity: int = 3,
    seed: int = 0,
) -> ImageSubset:
    """The data of a reference: at most `most` random examples, corrupted if a corruption is given.

    Of `sample` and `cifar10`, the data that a model knows (`role` "reference") is the validation part or the training
    part, and other data is the test part. Pictures are resized and cropped as the model needs them.
    """
    if corruption is not None:
        find_corruption(corruption)
        if severity not in SEVERITIES:
            raise DataError(f"severity is {severity}, but {corruption} has the severities 1 to 5.")
    known_part = "validation" if reference == "sample" else "train"
    data = open_unlabelled(
        reference,
        known_part if role == "reference" else "test",
        size=preprocessing.size,
        resize=preprocessing.resize,
        interpolation=preprocessing.interpolation,
    )
    if not len(data):
        raise DataError(f"{reference} has no images: name data that has some.")
    positions = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[: most or len(data)]
    return ImageSubset(data, positions, corruption, severity if corruption else 0, seed)


@dataclass(frozen=True)
class ImageSubset:
    """Some of the images of a data set, corrupted when they are read if a corruption is given."""

    data: Images | PictureFiles
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
