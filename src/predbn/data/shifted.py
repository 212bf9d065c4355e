"""One interface for clean and corrupted splits, whether they are on the disk or made on the fly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

from predbn.common import DataError
from predbn.shifts import corrupt, names
from predbn.shifts import find_corruption as find

from .batch import Batch, Device, Order
from .images import Images

__all__ = ["CLEAN", "SEVERITIES", "Corrupted", "Shifted", "check_split"]

CLEAN = "clean"
SEVERITIES = (1, 2, 3, 4, 5)

Constants = Literal["auto", "cifar", "imagenet"]


@runtime_checkable
class Shifted(Protocol):
    """A data set under every corruption and severity: the same images, in the same order, in each split.

    `names` lists the corruptions; besides them the name "clean" with severity 0 stands for the clean images.
    """

    name: str
    classes: tuple[str, ...]
    names: list[str]
    labels: Tensor
    index: Tensor

    def __len__(self) -> int:
        """How many images a split has."""

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[Batch]:
        """Batches of at most `size` images of one split, in the given order of positions or from first to last."""


class Corrupted:
    """Clean images, corrupted when they are asked for, on the device they are asked for.

    Each image is corrupted by its `index` in the clean set, so that a split is the same whatever the batch
    size, the order or the part of the images that is taken.
    """

    def __init__(self, clean: Images, *, seed: int = 0, constants: Constants = "auto") -> None:
        self.clean, self.seed, self.constants = clean, seed, constants
        self.name = f"{clean.name}-c"
        self.classes, self.labels, self.index = clean.classes, clean.labels, clean.index
        self.names = list(names("all"))

    def __len__(self) -> int:
        """How many images a split has."""
        return len(self.clean)

    def __repr__(self) -> str:
        """The clean images and what they are corrupted with."""
        return f"Corrupted({self.clean!r}, seed={self.seed}, constants={self.constants!r})"

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[Batch]:
        """Batches of at most `size` images of one split, in the given order of positions or from first to last."""
        clean = self.clean.batches(size, order=order, device=device)
        if check_split(name, severity):
            return clean
        find(name)
        return (self._corrupt(batch, name, severity) for batch in clean)

    def _corrupt(self, batch: Batch, name: str, severity: int) -> Batch:
        options = {"seed": self.seed, "index": batch.index, "constants": self.constants}
        return batch._replace(images=corrupt(batch.images, name, severity, **options))  # type: ignore[arg-type]


def check_split(name: str, severity: int) -> bool:
    """Whether the split is the clean one; a severity that its name does not have is an error."""
    if isinstance(severity, bool) or severity not in ((0,) if name == CLEAN else SEVERITIES):
        wanted = f"{CLEAN} has severity 0" if name == CLEAN else f"{name} has the severities 1 to 5"
        raise DataError(f"severity is {severity!r}, but {wanted}.")
    return name == CLEAN
