"""The batches of what a user gives as data (a data set of the package, a loader, a list of batches, or one tensor), cut
into batches of another size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from predbn.norm import Arguments, batches_of


@runtime_checkable
class DataSet(Protocol):
    """A data set like those of `predbn.data`: `Images`, or a split of corrupted images."""

    def __len__(self) -> int:
        """The number of examples."""

    def batches(self, size: int, *, order: Any = None, device: Any = None) -> Iterator[Any]:
        """Batches of at most `size` examples, by default in the data set's own order."""


class Batches:
    """The batches of a data set in one random order, or the batches of a loader in its order."""

    def __init__(self, data: DataSet | Iterable[Any], size: int, device: Any, seed: int) -> None:
        self.data, self.size, self.device = [data] if isinstance(data, Tensor) else data, size, device
        self.order: Any = None
        if isinstance(data, DataSet):
            self.order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.data, DataSet):
            return self.data.batches(self.size, order=self.order, device=self.device)
        return batches_of(self.data)

    def count(self) -> int:
        """The number of batches; 0 if it is unknown."""
        if isinstance(self.data, DataSet):
            return -(-len(self.data) // self.size)
        try:
            return len(self.data)  # type: ignore[arg-type]
        except TypeError:
            return 0


def regrouped(batches: Iterable[Arguments], size: int) -> Iterator[Arguments]:
    """Regroup the arguments of a model into batches of `size` examples.

    The remainder joins the last batch, so that none is small. Inputs of another shape begin a new batch. Arguments that
    are not tensors with a row for each example, such as a list of images, are left as they are.
    """
    waiting: list[Arguments] = []
    for arguments in batches:
        if waiting and not _can_join(waiting[0], arguments):
            yield _join(waiting)
            waiting = []
        if rows_of(arguments) is None:
            yield arguments
            continue
        waiting.append(arguments)
        while sum(rows_of(arguments) or 0 for arguments in waiting) >= 2 * size:
            joined = _join(waiting)
            yield take_rows(joined, slice(size))
            waiting = [take_rows(joined, slice(size, None))]
    if waiting:
        yield _join(waiting)


def rows_of(arguments: Arguments) -> int | None:
    """The number of rows of the arguments; None if they are not tensors with the same number of rows."""
    values = _values(arguments)
    counts = {len(value) if isinstance(value, Tensor) and value.dim() else None for value in values}
    return counts.pop() if len(counts) == 1 else None


def take_rows(arguments: Arguments, rows: slice) -> Arguments:
    args, kwargs = arguments
    return tuple(value[rows] for value in args), {name: value[rows] for name, value in kwargs.items()}


def _values(arguments: Arguments) -> tuple[Any, ...]:
    return *arguments[0], *arguments[1].values()


def _can_join(a: Arguments, b: Arguments) -> bool:
    """Whether both have the same arguments, of the same shape apart from the number of rows."""
    if rows_of(a) is None or rows_of(b) is None or len(a[0]) != len(b[0]) or list(a[1]) != list(b[1]):
        return False
    (x, y) = ([(value.shape[1:], value.dtype, value.device) for value in _values(side)] for side in (a, b))
    return x == y


def _join(batches: list[Arguments]) -> Arguments:
    if len(batches) == 1:
        return batches[0]
    args = tuple(torch.cat(values) for values in zip(*(args for args, _ in batches), strict=True))
    names = batches[0][1]
    return args, {name: torch.cat([kwargs[name] for _, kwargs in batches]) for name in names}
