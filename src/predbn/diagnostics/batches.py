"""The batches of what a user gives as data: a data set of the package, a loader, a list of batches, or one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from predbn.norm import count_examples


def input_of(batch: Any) -> Any:
    """The input of a model in a batch of a loader: the batch itself, or its first part if it is a tuple or a list."""
    return batch[0] if isinstance(batch, tuple | list) else batch


@runtime_checkable
class DataSet(Protocol):
    """A data set like those of `predbn.data`: `Images`, or a split of corrupted images."""

    def __len__(self) -> int:
        """The number of examples."""

    def batches(self, size: int, *, order: Any = None, device: Any = None) -> Iterator[Any]:
        """Batches of at most `size` examples, by default in the data set's own order."""


class Batches:
    """The batches of a data set in a random order that stays the same, or the batches of a loader as they come."""

    def __init__(self, data: DataSet | Iterable[Any], size: int, device: Any, seed: int) -> None:
        self.data, self.size, self.device = [data] if isinstance(data, Tensor) else data, size, device
        self.largest = 0
        self.order: Any = None
        if isinstance(data, DataSet):
            self.order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))

    def __iter__(self) -> Iterator[Any]:
        batches: Iterable[Any] = self.data  # type: ignore[assignment]
        if isinstance(self.data, DataSet):
            batches = self.data.batches(self.size, order=self.order, device=self.device)
        for batch in batches:
            self.largest = max(self.largest, count_examples(batch))
            yield batch

    def count(self) -> int:
        """The number of batches; 0 if it is not known."""
        if isinstance(self.data, DataSet):
            return -(-len(self.data) // self.size)
        try:
            return len(self.data)  # type: ignore[arg-type]
        except TypeError:
            return 0
