"""The folder of prepared rows: int32 [n, 40] in numbered .npy files, which are mapped into memory when they are used.

`source.json` says what the rows were made from and is written first. Each shard `00000.npy` has a `00000.json`,
written after it, which says which lines of the source it holds. `criteo.json`, written last, has the totals. A
preparation that was killed continues after the last shard that has its .json file. A lock keeps a second process out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from predbn.common import atomic_write, write_text

from .columns import WIDTH

SOURCE, TOTALS = "source.json", "criteo.json"


@dataclass(frozen=True)
class Shard:
    """One shard: its number of rows and of lines, the bytes of the source it covers, and the rejected lines.

    `examples` are the first of the rejected lines, as (line number in the source, reason).
    """

    rows: int
    lines: int
    begins: int
    ends: int
    rejected: int = 0
    examples: tuple[tuple[int, str], ...] = ()


class Shards:
    """A folder of prepared rows; `done` are its shards so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[Shard] = []
        while (shard_path := folder / f"{len(self.done):05d}.json").exists():
            fields = json.loads(shard_path.read_text())
            self.done.append(Shard(**{**fields, "examples": tuple(map(tuple, fields["examples"]))}))

    @property
    def complete(self) -> bool:
        """Whether the preparation is finished."""
        return (self.folder / TOTALS).exists()

    def record(self, shard: Shard) -> None:
        """Mark the next shard as written."""
        _write_json(self.folder / f"{len(self.done):05d}.json", asdict(shard))
        self.done.append(shard)

    def finish(self) -> None:
        """Mark the preparation as finished."""
        totals: dict[str, Any] = {
            name: sum(getattr(shard, name) for shard in self.done) for name in ("rows", "lines", "rejected")
        }
        _write_json(self.folder / TOTALS, {**totals, "shards": [shard.rows for shard in self.done]})


def write_shard(folder: Path, number: int, tables: Iterable[npt.NDArray[np.int32]]) -> int:
    """Write the rows of a shard, table by table, and return their number.

    The .npy header is written a second time at the end, when the number of rows is known. Its length is the same
    for any number of rows.
    """
    rows = 0
    with atomic_write(folder / f"{number:05d}.npy") as part, part.open("wb") as file:
        _write_header(file, rows)
        for table in tables:
            file.write(np.ascontiguousarray(table, "<i4").data)
            rows += len(table)
        file.seek(0)
        _write_header(file, rows)
    return rows


def _write_header(file: BinaryIO, rows: int) -> None:
    header = {"descr": "<i4", "fortran_order": False, "shape": (rows, WIDTH)}
    np.lib.format.write_array_header_1_0(file, header)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1) + "\n")
