"""Labelled rows: what a part of the data is to those who train on it and predict it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from predbn.common import DataError

from ..batch import Device, Order, positions_of, steps_of
from .columns import CLASSES, WIDTH

__all__ = ["RowBatch", "Rows"]


class RowBatch(NamedTuple):
    """Rows with their labels, and which row each one is in its file."""

    inputs: Tensor
    """int32 [n, 39]: 13 numbers as they are, then 26 tokens, on the device asked for."""
    labels: Tensor
    """int64 [n], 1 for a click, on the same device."""
    index: Tensor  # type: ignore[assignment]
    """int64 [n], on the CPU."""


class Rows:
    """Rows in one or more tables int32 [n, 40] one after another, mapped from files or held on a device.

    `first` is the index of the first row in the file that they come from, and the others follow it; or `index` gives
    each row's.
    """

    classes = CLASSES

    def __init__(self, tables: Sequence[Tensor], name: str, *, first: int = 0, index: Tensor | None = None) -> None:
        self.tables, self.name = [table for table in tables if len(table)], name
        for table in self.tables:
            if table.dtype != torch.int32 or table.ndim != 2 or table.shape[1] != WIDTH:
                raise DataError(f"{name}: a table is {table.dtype} {tuple(table.shape)}, not int32 [n, {WIDTH}].")
        self._ends = np.cumsum([0, *(len(table) for table in self.tables)])
        self.first, self._index = first, index
        if index is not None and tuple(index.shape) != (len(self),):
            raise DataError(f"{name}: index has shape {tuple(index.shape)}, but there are {len(self)} rows.")

    def __len__(self) -> int:
        """How many rows there are."""
        return int(self._ends[-1])

    def __repr__(self) -> str:
        """Name and number."""
        return f"Rows({self.name!r}, {len(self):,} rows)"

    @property
    def device(self) -> torch.device:
        """Where the rows are held."""
        return self.tables[0].device if self.tables else torch.device("cpu")

    @cached_property
    def index(self) -> Tensor:
        """int64 [N] on the CPU: which row of its file each one is."""
        return torch.arange(self.first, self.first + len(self)) if self._index is None else self._index

    @cached_property
    def labels(self) -> Tensor:
        """int64 [N], where the rows are held."""
        found = [table[:, 0].long() for table in self.tables]
        return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)

    @cached_property
    def sums(self) -> dict[str, str]:
        """SHA-256 of the tables, however they are cut."""
        digest = hashlib.sha256()
        for table in self.tables:
            for piece in table.split(1 << 16):
                digest.update(piece.cpu().contiguous().numpy().data)
        return {"rows": digest.hexdigest()}

    def table(self, positions: Tensor) -> Tensor:
        """The rows at these positions, int32 [n, 40], copied, where they are held."""
        if len(self.tables) == 1:
            return self.tables[0].index_select(0, positions.to(self.device))
        which = np.searchsorted(self._ends, positions.numpy(), side="right") - 1
        found = torch.empty((len(positions), WIDTH), dtype=torch.int32)
        for number in np.unique(which).tolist():
            mine = torch.from_numpy(np.flatnonzero(which == number))
            found[mine] = self.tables[number].index_select(0, positions[mine] - int(self._ends[number]))
        return found

    def part(self, start: int, stop: int, name: str) -> Rows:
        """The rows from `start` to before `stop`, without a copy."""
        pairs = zip(self.tables, self._ends.tolist(), strict=False)
        tables = [table[max(0, start - begin) : max(0, stop - begin)] for table, begin in pairs]
        index = None if self._index is None else self._index[start:stop]
        return Rows(tables, name, first=self.first + start, index=index)

    def take(self, which: int | Order) -> Rows:
        """The first `which` rows, or those at these positions, in that order."""
        if isinstance(which, int):
            if not 0 <= which <= len(self):
                raise DataError(f"{self.name} has {len(self)} rows: {which} of them cannot be taken.")
            return self.part(0, which, self.name)
        positions = positions_of(which, len(self))
        return Rows([self.table(positions)], self.name, index=self.index[positions])

    def to(self, device: Device) -> Rows:
        """The same rows held in one table on a device."""
        whole = torch.empty((len(self), WIDTH), dtype=torch.int32, device=device)
        for table, start in zip(self.tables, self._ends.tolist(), strict=False):
            for piece, rows in zip(table.split(1 << 16), whole[start : start + len(table)].split(1 << 16), strict=True):
                rows.copy_(piece)
        return Rows([whole], self.name, first=self.first, index=self._index)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[RowBatch]:
        """Batches of at most `size` rows, in the given order of positions or from first to last, on `device`, which is
        where the rows are held unless it is given."""
        place = self.device if device is None else torch.device(device)
        steps = steps_of(order, len(self), size) if order is not None else self._steps(size)
        return self._walk(steps, place)

    def _steps(self, size: int) -> Iterator[Tensor]:
        steps_of([], 0, size)
        return (torch.arange(start, min(start + size, len(self))) for start in range(0, len(self), size))

    def _walk(self, steps: Iterator[Tensor] | list[Tensor], place: torch.device) -> Iterator[RowBatch]:
        for step in steps:
            table = self.table(step)
            if place.type == "cuda" and table.device.type == "cpu":
                table = table.pin_memory().to(place, non_blocking=True)
            table = table.to(place)
            index = step + self.first if self._index is None else self._index[step]
            yield RowBatch(table[:, 1:], table[:, 0].long(), index)
