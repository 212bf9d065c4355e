"""The folder of prepared rows: int32 [n, 40] in numbered .npy files, which are mapped into memory when they are used.

`source.json` says what the rows were made from and is written first. Each shard `00000.npy` has a `00000.json`,
written after it, which says which lines of the source it holds. `criteo.json`, written last, has the totals. A
preparation that was killed continues after the last shard that has its .json file. A lock keeps a second process out.
Every file has a checksum: shards from the first damaged one on are made again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from predbn.common import DataError, map_threads, read_json, write_array, write_json

from ..npy import load_array
from .columns import WIDTH

SOURCE, TOTALS = "source.json", "criteo.json"
REMEDY = "run the same predbn data criteo again, which makes damaged files anew"


@dataclass(frozen=True)
class Shard:
    """One shard: its number of rows and of lines, where the next one begins in the source, and the rejected lines.

    `examples` are the first of the rejected lines, as (line number in the source, reason).
    """

    rows: int
    lines: int
    ends: int
    rejected: int = 0
    examples: tuple[tuple[int, str], ...] = ()


class Shards:
    """A folder of prepared rows; `done` are its shards up to the first damaged one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[Shard] = []
        while (path := self._next_card).exists() and (shard := _read_shard(path)) is not None:
            self.done.append(shard)
        intact = map_threads(self._is_intact, range(len(self.done)))
        del self.done[[*intact, False].index(False) :]
        if self.complete and not self._has_right_totals():
            (self.folder / TOTALS).unlink()

    @property
    def _next_card(self) -> Path:
        return self.folder / f"{len(self.done):05d}.json"

    def _is_intact(self, number: int) -> bool:
        try:
            load_shard(self.folder, number, self.done[number].rows)
        except DataError:
            return False
        return True

    def _has_right_totals(self) -> bool:
        try:
            return read_totals(self.folder)[1] == [shard.rows for shard in self.done]
        except DataError:
            return False

    @property
    def complete(self) -> bool:
        """Whether the preparation is finished."""
        return (self.folder / TOTALS).exists()

    def record(self, shard: Shard) -> None:
        """Mark the next shard as written."""
        write_json(self._next_card, asdict(shard))
        self.done.append(shard)

    def finish(self) -> None:
        """Mark the preparation as finished."""
        totals: dict[str, Any] = {
            name: sum(getattr(shard, name) for shard in self.done) for name in ("rows", "lines", "rejected")
        }
        write_json(self.folder / TOTALS, {**totals, "shards": [shard.rows for shard in self.done]})


def _read_shard(path: Path) -> Shard | None:
    """What a .json file says about its shard; None if it is damaged."""
    try:
        fields = read_json(path, error=DataError, remedy=REMEDY)
        return Shard(**{**fields, "examples": tuple((int(line), str(reason)) for line, reason in fields["examples"])})
    except (DataError, KeyError, TypeError, ValueError):
        return None


def read_totals(folder: Path) -> tuple[bool, list[int]]:
    """Whether the rows in a folder are synthetic, and the number of rows of each shard."""
    source, totals = (read_json(folder / name, error=DataError, remedy=REMEDY) for name in (SOURCE, TOTALS))
    counts = totals.get("shards")
    if not isinstance(counts, list) or not all(isinstance(count, int) and count >= 0 for count in counts):
        raise DataError(f"{folder / TOTALS} does not say how many rows each shard has: {REMEDY}.")
    if sum(counts) != totals.get("rows"):
        raise DataError(f"{folder} has {sum(counts)} of its {totals.get('rows')} rows: {REMEDY}.")
    return bool(source.get("synthetic")), counts


def load_shard(folder: Path, number: int, rows: int) -> npt.NDArray[np.int32]:
    """The rows of a shard, mapped into memory; an error if they are damaged or not as many as this."""
    path = folder / f"{number:05d}.npy"
    table = load_array(path)
    if table.dtype != np.int32 or table.shape != (rows, WIDTH):
        raise DataError(f"{path} is {table.dtype} {table.shape}, but must be int32 {(rows, WIDTH)}: {REMEDY}.")
    return table


def write_shard(folder: Path, number: int, table: npt.NDArray[np.int32]) -> None:
    """Write the rows of a shard."""
    write_array(folder / f"{number:05d}.npy", table)
