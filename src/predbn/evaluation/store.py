"""The folder of a run: parts while it is computed, whole tables when it is done.

    plan.toml            the last plan
    card.json            what one needs to repeat the run
    results.parquet      one row per metric   } all that is finished, sorted: the same bytes whatever the order
    reliability.parquet  one row per bin      } in which units finished
    hits.parquet         which images were predicted correctly, if the plan wants it
    predictions.parquet  what was predicted for each image, if the plan has a reference
    fits.parquet         temperatures and eps found on validation data
    examples.parquet     one picture under each shift, for the report
    parts/               what was computed since the last merge: one file per unit

A run can be killed at any moment and loses only the unit that was being computed:

- A file gets its name when it is complete, and has a checksum.
- `merge` first writes all tables and then removes the parts. If it is killed in between, rows are in a table and in a
  part. Both copies are the same, and readers drop one of them, so the next merge gives the tables of an
  uninterrupted run.
- A cell is finished if it is in all tables that the plan wants. A table that was removed is computed again.
- A reader that finds files replaced or removed while it reads, because a run merges, reads all of them again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from predbn.common import EvaluationError, lock_folder, read_json, sync_folder

from .examples import EXAMPLES
from .table_files import read_table, write_table
from .tables import (
    FITS,
    HITS,
    KEYS,
    PART,
    PREDICTIONS,
    RELIABILITY,
    RESULTS,
    fits_table,
    part_table,
    predictions_table,
    tidy_tables,
)
from .units import Fit, UnitResult

_TABLES = {
    "results": (RESULTS, (*KEYS, "metric")),
    "reliability": (RELIABILITY, (*KEYS, "bin")),
    "hits": (HITS, KEYS),
    "predictions": (PREDICTIONS, KEYS),
}
"""The schema of each table, and the columns that identify a row and sort the table."""
CARD = "card.json"
_EXAMPLES_FILE = "examples.parquet"
_OBJECTS_IN_CARD = ("data", "models", "ensembles", "plan", "paper")
_DONE_COLUMNS = ["model", "method", "strategy", "batch_size", "corruption", "severity", "order", "seed"]
_PREDICTIONS = "predictions-"
"""How the names of parts with predictions begin."""
_ATTEMPTS, _PAUSE = 100, 0.05
"""How often a reader tries again while tables are replaced, and how many seconds it waits in between."""

T = TypeVar("T")


class Store:
    """Reads and writes the folder of a run. One process may write at a time; any number may read."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._parts = self.folder / "parts"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make the folder, and keep other runs from writing to it."""
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EvaluationError(f"{self.folder} cannot be written to ({error.strerror}): choose another.") from None
        with lock_folder(self.folder, error=EvaluationError):
            yield

    def card(self) -> dict[str, Any] | None:
        """The run card, or None if there is none yet."""
        path, remedy = self.folder / CARD, "restore it, or compute the run again in another folder"
        try:
            card = read_json(path, error=EvaluationError, remedy=remedy)
        except FileNotFoundError:
            return None
        for name in _OBJECTS_IN_CARD:
            if not isinstance(card.get(name, {}), dict):
                raise EvaluationError(f"{path} is not a run card, because its {name} is no object: {remedy}.")
        return card

    @property
    def is_empty(self) -> bool:
        """Whether there are neither tables nor parts."""
        return not _parquet_files(self.folder) and not _parquet_files(self._parts)

    def add(self, result: UnitResult) -> None:
        """Keep the result of a unit."""
        if result.fits:
            write_table(self._parts / f"fit-{result.unit.name}.parquet", fits_table(result.fits))
        predictions = predictions_table(result.rows)
        if len(predictions):
            write_table(self._parts / f"{_PREDICTIONS}{result.unit.name}.parquet", predictions)
        if result.rows:
            write_table(self._parts / f"{result.unit.name}.parquet", part_table(result.rows))

    def done(self, *, hits: bool = False, predictions: bool = False) -> set[tuple[Any, ...]]:
        """All finished cells: (model, method, strategy, batch size, corruption, severity, order, seed).

        These are the cells that have results and a reliability diagram and, if they are asked for, hits and predictions
        too.
        """
        optional = {"hits": hits, "predictions": predictions}
        return self._read_steadily(lambda: self._read_done([name for name in _TABLES if optional.get(name, True)]))

    def _read_done(self, wanted: Sequence[str]) -> set[tuple[Any, ...]]:
        found: dict[str, set[tuple[Any, ...]]] = {name: set() for name in wanted}
        for path in self._split_parts():
            part = read_table(path, PART)
            for name in wanted:
                if name == "predictions":
                    continue
                found[name] |= _cells(part.filter(pc.is_valid(part["hits"])) if name == "hits" else part)
        for name in wanted:
            parts = self._prediction_parts() if name == "predictions" else []
            for path in [*parts, *self._table_files(name)]:
                found[name] |= _cells(read_table(path, _TABLES[name][0]))
        return set.intersection(*found.values())

    def fits(self) -> list[Fit]:
        """All fits found so far."""
        return self._read_steadily(self._read_fits)

    def _read_fits(self) -> list[Fit]:
        paths = [*self._fit_parts(), *self._table_files("fits")]
        fits = {Fit(**row): None for path in paths for row in read_table(path, FITS).to_pylist()}
        return sorted(fits, key=lambda fit: fit[:4])

    def tables(self) -> dict[str, pa.Table]:
        """The tables of results: everything that is finished, sorted, without duplicates."""
        return self._read_steadily(self._read_tables)

    def _read_tables(self) -> dict[str, pa.Table]:
        parts = [tidy_tables(read_table(path, PART)) for path in self._split_parts()]
        parts += [{"predictions": read_table(path, PREDICTIONS)} for path in self._prediction_parts()]
        tables = {}
        for name, (schema, columns) in _TABLES.items():
            pieces = [read_table(path, schema) for path in self._table_files(name)] + [
                part[name] for part in parts if name in part
            ]
            table = pa.concat_tables([schema.empty_table(), *pieces])
            # Only a merge that was killed leaves duplicates, and then there are parts.
            table = _unique(table, columns) if parts else table
            tables[name] = table.sort_by([(column, "ascending") for column in columns])
        return tables

    def examples(self) -> pa.Table:
        """The example pictures; no rows if there are none."""
        try:
            return read_table(self.folder / _EXAMPLES_FILE, EXAMPLES)
        except FileNotFoundError:
            return EXAMPLES.empty_table()

    def write_examples(self, table: pa.Table) -> None:
        """Replace the example pictures."""
        write_table(self.folder / _EXAMPLES_FILE, table)

    def merge(self) -> None:
        """Move all parts into the tables."""
        merged = _parquet_files(self._parts)
        if not merged:
            return
        for name, table in self.tables().items():
            if name not in ("hits", "predictions") or len(table):
                write_table(self.folder / f"{name}.parquet", table)
        fits = self.fits()
        if fits:
            write_table(self.folder / "fits.parquet", fits_table(fits))
        # Only now, when every row is in a table: killed before this line, the parts are still complete; killed after
        # it, what they held is in the tables.
        sync_folder(self.folder)
        for path in merged:
            path.unlink()

    def _read_steadily(self, read: Callable[[], T]) -> T:
        """What `read` returns when no table is replaced and no part is removed while it reads."""
        for _ in range(_ATTEMPTS):
            try:
                before = self._versions()
                found = read()
                if self._versions() == before:
                    return found
            except FileNotFoundError:
                pass
            time.sleep(_PAUSE)
        raise EvaluationError(f"{self.folder} changes while it is read: wait for the run that writes to it.")

    def _versions(self) -> list[tuple[str, int, int]]:
        """Something that changes when a table is replaced."""
        stats = [(path.name, path.stat()) for path in _parquet_files(self.folder)]
        return [(name, stat.st_ino, stat.st_mtime_ns) for name, stat in stats]

    def _table_files(self, name: str) -> list[Path]:
        path = self.folder / f"{name}.parquet"
        return [path] if path.exists() else []

    def _split_parts(self) -> list[Path]:
        return [path for path in _parquet_files(self._parts) if not path.name.startswith(("fit-", _PREDICTIONS))]

    def _prediction_parts(self) -> list[Path]:
        return [path for path in _parquet_files(self._parts) if path.name.startswith(_PREDICTIONS)]

    def _fit_parts(self) -> list[Path]:
        return [path for path in _parquet_files(self._parts) if path.name.startswith("fit-")]


def _parquet_files(folder: Path) -> list[Path]:
    """The tables in a folder; none if there is no folder. A folder that may not be read is an error, not empty."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EvaluationError(f"{folder} cannot be read ({error.strerror}): check its permissions.") from None
    return sorted(folder / name for name in names if name.endswith(".parquet"))


def _cells(table: pa.Table) -> set[tuple[Any, ...]]:
    rows = _unique(table.select(_DONE_COLUMNS), _DONE_COLUMNS).to_pylist()
    return {tuple(row.values()) for row in rows}


def _unique(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The table without rows whose values in these columns occurred before."""
    numbered = table.select(columns).append_column("row", pa.array(np.arange(len(table))))
    first = numbered.group_by(columns, use_threads=False).aggregate([("row", "min")])["row_min"]
    return table if len(first) == len(table) else table.take(first.combine_chunks().sort())
