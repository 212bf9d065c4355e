"""Labelled rows, and the parts of a folder of prepared ones.

The reference benchmark (Ovadia et al. 2019) trains on the first 37,000,000 of the 45,840,617 rows, which are in the
order of time, and halves the rest into validation and test data. Files of another length are split in the same
proportion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from predbn.common import DataError, cache_folder, map_threads

from ..batch import Device, Order, batch_positions, resolve_order
from .columns import CLASSES, WIDTH
from .shards import SOURCE, TOTALS, load_shard, read_totals

Part = Literal["train", "validation", "test", "all"]

_TRAIN_ROWS, _ALL_ROWS = 37_000_000, 45_840_617
_CHUNK = 1 << 16


class RowBatch(NamedTuple):
    """Rows with their labels and their position in the file."""

    inputs: Tensor
    """int32 [n, 39]: 13 numbers, then 26 tokens, on the requested device."""
    labels: Tensor
    """int64 [n], 1 for a click, on the same device."""
    index: Tensor  # type: ignore[assignment]
    """int64 [n], on the CPU."""


class Rows:
    """Rows in consecutive tables int32 [n, 40], mapped from files or on a device.

    `first` is the position of the first row in the file that the rows come from, and the others follow it. If they do
    not, `index` gives the position of each row.
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
        """The number of rows."""
        return int(self._ends[-1])

    def __repr__(self) -> str:
        """Name and number of rows."""
        return f"Rows({self.name!r}, {len(self):,} rows)"

    @property
    def device(self) -> torch.device:
        """The device that the rows are on."""
        return self.tables[0].device if self.tables else torch.device("cpu")

    @cached_property
    def index(self) -> Tensor:
        """int64 [N] on the CPU: the position of each row in its file."""
        return torch.arange(self.first, self.first + len(self)) if self._index is None else self._index

    @cached_property
    def labels(self) -> Tensor:
        """int64 [N], on the device of the rows."""
        labels = [table[:, 0].long() for table in self.tables]
        return torch.cat(labels) if labels else torch.empty(0, dtype=torch.int64)

    @cached_property
    def sums(self) -> dict[str, str]:
        """SHA-256 of the rows; how they are divided into tables does not matter."""
        digest = hashlib.sha256()
        for table in self.tables:
            for chunk in table.split(_CHUNK):
                digest.update(chunk.cpu().contiguous().numpy().data)
        return {"rows": digest.hexdigest()}

    def table(self, positions: Tensor) -> Tensor:
        """A copy of the rows at these positions, int32 [n, 40], on the device of the rows."""
        if len(self.tables) == 1:
            return self.tables[0].index_select(0, positions.to(self.device))
        table_numbers = np.searchsorted(self._ends, positions.numpy(), side="right") - 1
        rows = torch.empty((len(positions), WIDTH), dtype=torch.int32)
        for number in np.unique(table_numbers).tolist():
            in_table = torch.from_numpy(np.flatnonzero(table_numbers == number))
            rows[in_table] = self.tables[number].index_select(0, positions[in_table] - int(self._ends[number]))
        return rows

    def part(self, start: int, stop: int, name: str) -> Rows:
        """The rows `start` to `stop − 1`, without a copy."""
        begins = zip(self.tables, self._ends.tolist(), strict=False)
        tables = [table[max(0, start - begin) : max(0, stop - begin)] for table, begin in begins]
        index = None if self._index is None else self._index[start:stop]
        return Rows(tables, name, first=self.first + start, index=index)

    def take(self, which: int | Order) -> Rows:
        """The first `which` rows, or the rows at these positions in that order."""
        if isinstance(which, int):
            if not 0 <= which <= len(self):
                raise DataError(f"{self.name} has {len(self)} rows: cannot take {which} of them.")
            return self.part(0, which, self.name)
        positions = resolve_order(which, len(self))
        return Rows([self.table(positions)], self.name, index=self.index[positions])

    def to(self, device: Device) -> Rows:
        """The same rows in one table on a device."""
        whole = torch.empty((len(self), WIDTH), dtype=torch.int32, device=device)
        for table, start in zip(self.tables, self._ends.tolist(), strict=False):
            target = whole[start : start + len(table)]
            for source_chunk, target_chunk in zip(table.split(_CHUNK), target.split(_CHUNK), strict=True):
                target_chunk.copy_(source_chunk)
        return Rows([whole], self.name, first=self.first, index=self._index)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[RowBatch]:
        """Batches of at most `size` rows on `device` (by default that of the rows).

        `order` gives the positions to visit; by default, all from first to last.
        """
        target = self.device if device is None else torch.device(device)
        positions = self._consecutive(size) if order is None else batch_positions(order, len(self), size)
        return self._read_batches(positions, target)

    def _consecutive(self, size: int) -> Iterator[Tensor]:
        """The positions of consecutive batches, made one at a time: 45 million of them would need 370 MB."""
        batch_positions([], 0, size)  # checks the size
        return (torch.arange(start, min(start + size, len(self))) for start in range(0, len(self), size))

    def _read_batches(self, batches: Iterable[Tensor], target: torch.device) -> Iterator[RowBatch]:
        for positions in batches:
            table = self.table(positions)
            if target.type == "cuda" and table.device.type == "cpu":
                table = table.pin_memory().to(target, non_blocking=True)
            table = table.to(target)
            index = positions + self.first if self._index is None else self._index[positions]
            yield RowBatch(table[:, 1:], table[:, 0].long(), index)


def split_at(rows: int) -> tuple[int, int]:
    """The positions of the first validation row and of the first test row."""
    train = rows * _TRAIN_ROWS // _ALL_ROWS
    return train, train + (rows - train) // 2


def criteo_folder(cache: Path | None = None, *, synthetic: bool = False) -> Path:
    """The folder of prepared rows in a cache folder, by default the user's; it need not exist."""
    return (cache or cache_folder()) / ("criteo-synthetic" if synthetic else "criteo")


def criteo(part: Part, root: str | Path | None = None) -> Rows:
    """One part of the rows prepared in the folder `root`, by default the cache of `predbn data criteo`.

    The name of synthetic rows says that they are synthetic.
    """
    if part not in get_args(Part):
        raise DataError(f"There is no part {part!r} of Criteo: use {', '.join(get_args(Part))}.")
    folder = criteo_folder() if root is None else Path(root).expanduser()
    if not (folder / TOTALS).is_file():
        if (folder / SOURCE).is_file():
            raise DataError(f"{folder} is only partly prepared: run the same predbn data criteo again to continue.")
        raise DataError(
            f"{folder} does not hold prepared rows: make them with predbn data criteo --root PATH/TO/train.txt."
        )
    is_synthetic, counts = read_totals(folder)
    ends = np.cumsum([0, *counts]).tolist()
    validation, test = split_at(ends[-1])
    bounds = {"train": (0, validation), "validation": (validation, test), "test": (test, ends[-1])}
    start, stop = bounds.get(part, (0, ends[-1]))

    def load(number: int) -> Tensor:
        begins = ends[number]
        table = load_shard(folder, number, counts[number])
        return torch.from_numpy(table[max(0, start - begins) : stop - begins])

    numbers = [number for number in range(len(counts)) if ends[number] < stop and ends[number + 1] > start]
    name = "criteo-synthetic" if is_synthetic else "criteo"
    return Rows(map_threads(load, numbers), f"{name}-{part}", first=start)
