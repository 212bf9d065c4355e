"""The interface of data sets with clean and shifted splits, and corruption on the fly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import Tensor

from predbn.common import DataError
from predbn.shifts import corrupt, find_corruption, names_for

from .batch import Device, ImageBatch, Order
from .images import Images

CLEAN = "clean"
SEVERITIES = (1, 2, 3, 4, 5)


@runtime_checkable
class ShiftedDataset(Protocol):
    """A data set with a split for each corruption and severity; all splits have the same images in the same order.

    `names` lists the corruptions. The split "clean" with severity 0 holds the clean images.
    """

    name: str
    classes: tuple[str, ...]
    names: list[str]
    labels: Tensor
    index: Tensor

    def __len__(self) -> int:
        """The number of images of a split."""

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[ImageBatch]:
        """Batches of at most `size` images of one split, in an order of positions or from first to last.

        `name` and `severity` are those of the corruption; batches are made on the `device`.
        """


class Corrupted:
    """Clean images that are corrupted on the fly, on the requested device.

    The random draws depend on the `seed` and on the `index` of each image in the clean set, so that a split does not
    depend on the batch size, the order, or which part of the images is used.
    """

    def __init__(self, clean: Images, *, seed: int = 0) -> None:
        self.clean, self.seed = clean, seed
        self.name = f"{clean.name}-c"
        self.classes, self.labels, self.index = clean.classes, clean.labels, clean.index
        self.names = [] if clean.is_prepared else list(names_for(*clean.images.shape[1:]))

    def __len__(self) -> int:
        return len(self.clean)

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[ImageBatch]:
        """Batches of at most `size` images of one split, in an order of positions or from first to last."""
        clean = self.clean.batches(size, order=order, device=device)
        if check_split(name, severity):
            return clean
        find_corruption(name)
        return (self._corrupt(batch, name, severity) for batch in clean)

    def _corrupt(self, batch: ImageBatch, name: str, severity: int) -> ImageBatch:
        return batch._replace(images=corrupt(batch.images, name, severity, seed=self.seed, index=batch.index))


def check_split(name: str, severity: int) -> bool:
    """Whether the split is the clean one; an error if it does not have that severity."""
    if isinstance(severity, bool) or severity not in ((0,) if name == CLEAN else SEVERITIES):
        valid = f"{CLEAN} has severity 0" if name == CLEAN else f"{name} has the severities 1 to 5"
        raise DataError(f"severity is {severity!r}, but {valid}.")
    return name == CLEAN
