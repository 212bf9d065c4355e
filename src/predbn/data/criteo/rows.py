"""Labelled rows, and the parts of a folder of prepared ones.

The reference benchmark (Ovadia et al. 2019) trains on the first 37,000,000 of the 45,840,617 rows, which are in the
order of time, and halves the rest into validation and test data. Files of another length are split in the same
proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from predbn.common import DataError, cache_folder

from ..batch import Device, Order, batch_positions, rows_to_device
from ..images import sha256_of
from .columns import CLASSES, WIDTH
from .files import load_rows, read_prepared

Part = Literal["train", "validation", "test", "all"]

_TRAIN_ROWS, _ALL_ROWS = 37_000_000, 45_840_617


class RowBatch(NamedTuple):
    """Rows with their labels and their position in the file."""

    inputs: Tensor
    """int32 [n, 39]: 13 numbers, then 26 tokens, on the requested device."""
    labels: Tensor
    """int64 [n], 1 for a click, on the same device."""
    index: Tensor  # type: ignore[assignment]
    """int64 [n], on the CPU."""


class Rows:
    """Consecutive rows of a file, int32 [n, 40], mapped from the file or on a device.

    `first` is the position of the first row in the file that the rows come from.
    """

    classes = CLASSES

    def __init__(self, data: Tensor, name: str, *, first: int = 0) -> None:
        if data.dtype != torch.int32 or data.ndim != 2 or data.shape[1] != WIDTH:
            raise DataError(f"{name}: rows are {data.dtype} {tuple(data.shape)}, but must be int32 [n, {WIDTH}].")
        self.data, self.name, self.first = data, name, first

    def __len__(self) -> int:
        return len(self.data)

    @property
    def device(self) -> torch.device:
        return self.data.device

    @cached_property
    def index(self) -> Tensor:
        """int64 [N] on the CPU: the position of each row in its file."""
        return torch.arange(self.first, self.first + len(self))

    @cached_property
    def labels(self) -> Tensor:
        """int64 [N], on the device of the rows."""
        return self.data[:, 0].long()

    @cached_property
    def sums(self) -> dict[str, str]:
        return {"rows": sha256_of(self.data)}

    def table(self, positions: Tensor) -> Tensor:
        """A copy of the rows at these positions, int32 [n, 40], on the device of the rows."""
        return self.data.index_select(0, positions.to(self.device))

    def to(self, device: Device) -> Rows:
        return Rows(self.data.to(device), self.name, first=self.first)

    def batches(self, size: int, *, order: Order | None = None, device: Device | None = None) -> Iterator[RowBatch]:
        """Batches of at most `size` rows on `device` (by default that of the rows).

        `order` gives the positions to visit; by default, all from first to last.
        """
        target = self.device if device is None else torch.device(device)
        positions = self._consecutive(size) if order is None else batch_positions(order, len(self), size)
        return self._read_batches(positions, target)

    def _consecutive(self, size: int) -> Iterator[Tensor]:
        """The positions of consecutive batches, generated one at a time: 45 million of them would need 370 MB."""
        batch_positions([], 0, size)  # checks the size
        return (torch.arange(start, min(start + size, len(self))) for start in range(0, len(self), size))

    def _read_batches(self, batches: Iterable[Tensor], target: torch.device) -> Iterator[RowBatch]:
        for positions in batches:
            table = rows_to_device(self.data, positions, target)
            yield RowBatch(table[:, 1:], table[:, 0].long(), positions + self.first)


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
    prepared = read_prepared(folder)
    validation, test = split_at(prepared.rows)
    bounds = {"train": (0, validation), "validation": (validation, test), "test": (test, prepared.rows)}
    start, stop = bounds.get(part, (0, prepared.rows))
    name = "criteo-synthetic" if prepared.synthetic else "criteo"
    data = torch.from_numpy(load_rows(folder, prepared)[start:stop])
    return Rows(data, f"{name}-{part}", first=start)
