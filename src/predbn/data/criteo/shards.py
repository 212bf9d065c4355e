"""A prepared folder: rows as int32 [n, 40] in numbered .npy files that are mapped, never loaded.

`source.json` says what the rows were made from and is there from the beginning; each shard `00000.npy` has a
`00000.json`, written after it, that says which lines of the source it holds; `criteo.json`, written last, has the
totals. Whatever is killed in between goes on after the last shard that has its .json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from predbn.common import PART, DataError, finish, part_of, write_bytes

from .columns import WIDTH

__all__ = ["Shard", "Shards", "write_shard"]

SOURCE, TOTALS = "source.json", "criteo.json"


@dataclass(frozen=True)
class Shard:
    """What one shard holds: rows, the lines they come from, where those begin and end, and lines that are no rows.

    `examples` are the first of those lines, as [line of the source, why].
    """

    rows: int
    lines: int
    begins: int
    ends: int
    rejected: int = 0
    examples: tuple[tuple[int, str], ...] = ()


class Shards:
    """The folder as it is being filled."""

    def __init__(self, folder: Path, source: Mapping[str, Any]) -> None:
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is a file, but prepared rows go into a folder.")
        place = folder / SOURCE
        if place.exists():
            if json.loads(place.read_text()) != source:
                raise DataError(
                    f"{folder} was prepared from another file or in another way: delete it, or choose another --out."
                )
        elif folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder} is not empty and holds no prepared rows: choose another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("*" + PART):
            leftover.unlink()
        write_bytes(place, _json(source))
        self.done: list[Shard] = []
        while (place := folder / f"{len(self.done):05d}.json").exists():
            found = json.loads(place.read_text())
            self.done.append(Shard(**{**found, "examples": tuple(map(tuple, found["examples"]))}))

    @property
    def complete(self) -> bool:
        """Whether all shards are there."""
        return (self.folder / TOTALS).exists()

    def record(self, shard: Shard) -> None:
        """Say that the rows of the next shard are there."""
        write_bytes(self.folder / f"{len(self.done):05d}.json", _json(asdict(shard)))
        self.done.append(shard)

    def finish(self) -> None:
        """Say that there are no more."""
        totals: dict[str, Any] = {name: sum(getattr(s, name) for s in self.done) for name in _SUMMED}
        write_bytes(self.folder / TOTALS, _json({**totals, "shards": [shard.rows for shard in self.done]}))


_SUMMED = ("rows", "lines", "rejected")


def write_shard(folder: Path, number: int, tables: Iterable[npt.NDArray[np.int32]]) -> int:
    """Write the rows of a shard as its tables come, and say how many there are.

    The header has room for any number of rows, and is written again when it is known.
    """
    path, rows = folder / f"{number:05d}.npy", 0
    with part_of(path).open("wb") as file:
        _write_header(file, rows)
        for table in tables:
            file.write(np.ascontiguousarray(table, "<i4").data)
            rows += len(table)
        file.seek(0)
        _write_header(file, rows)
    finish(path)
    return rows


def _write_header(file: BinaryIO, rows: int) -> None:
    header = {"descr": "<i4", "fortran_order": False, "shape": (rows, WIDTH)}
    np.lib.format.write_array_header_1_0(file, header)


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
