"""The unlabelled data that a command is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .options import usage_error

if TYPE_CHECKING:
    from torch import Tensor

    from predbn.data import Device, ImageBatch, Images, Order, PictureFiles
    from predbn.models import Classifier, Preprocessing


@dataclass(frozen=True)
class ImageSubset:
    """Some of the images of a data set, corrupted when they are read if a corruption is given."""

    data: Images | PictureFiles
    positions: Tensor
    corruption: str | None = None
    severity: int = 0
    seed: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[ImageBatch]:
        """Batches of at most `size` examples, by default in the order of `positions`."""
        positions = self.positions if order is None else self.positions[order]
        for batch in self.data.batches(size, order=positions, device=device):
            yield batch if self.corruption is None else self._corrupt(batch, self.corruption)

    def _corrupt(self, batch: ImageBatch, corruption: str) -> ImageBatch:
        from predbn.shifts import corrupt

        images = corrupt(batch.images, corruption, self.severity, seed=self.seed, index=batch.index)
        return batch._replace(images=images)


def open_images(
    reference: str,
    role: Literal["reference", "data"],
    preprocessing: Preprocessing,
    max_images: int,
    *,
    option: str,
    corruption: str | None = None,
    severity: int = 0,
    seed: int = 0,
) -> ImageSubset:
    """At most `max_images` random images without labels, resized and cropped as the model needs them.

    Of `sample` and `cifar10`, the data that a model knows (`role` "reference") is the validation part or the training
    part, and other data is the test part. `option` is what names the images on the command line.
    """
    import torch

    from predbn.common import DataError
    from predbn.data import open_unlabelled

    known_part = "validation" if reference == "sample" else "train"
    with usage_error(option):
        part = known_part if role == "reference" else "test"
        data = open_unlabelled(reference, part, transform=preprocessing.crop, images=max_images)
        if not len(data):
            raise DataError(f"{reference} has no images: name data that has some.")
    positions = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:max_images]
    return ImageSubset(data, positions, corruption, severity, seed)


def open_reference(
    reference: str, model: Classifier, max_images: int, *, seed: int = 0, option: str = "--reference"
) -> ImageSubset:
    """At most `max_images` images that the model knows, without labels; `option` names them."""
    return open_images(reference, "reference", model.info.preprocessing, max_images, option=option, seed=seed)
