"""The folder of a run: parts while it is computed, whole tables when it is done.

    plan.toml            the last plan
    card.json            what is needed to repeat the run
    results.parquet      one row per metric   } all that is finished, sorted: the same bytes whatever the order
    reliability.parquet  one row per bin      } in which units finished
    hits.parquet         which images were predicted correctly, if the plan wants it
    predictions.parquet  what was predicted for each image, if the plan has a reference
    fits.parquet         temperatures fitted on validation data
    examples.parquet     one picture under each shift, for the report
    parts/               the same tables for each unit since the last merge: `results-UNIT.parquet` and so on

A run can be killed at any moment and loses only the unit that was being computed:

- A file gets its name when it is complete, and has a checksum.
- A cell is finished if it is in all tables that the plan wants. Whatever is missing is computed again.
- `merge` first writes all tables and then removes the parts. If it is killed in between, rows are in a table and in a
  part. Both copies are the same, and readers drop one of them, so the next merge gives the tables of an
  uninterrupted run.
- A reader that finds parts removed while it reads, because a run merges, reads all of them again.
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

from predbn.common import EvaluationError, lock_folder, read_json, sync_folder

from .examples import EXAMPLES
from .table_files import read_table, write_table
from .tables import TABLES, tables_of
from .units import Fit, UnitResult

CARD = "card.json"
_EXAMPLES_FILE = "examples.parquet"
_OBJECTS_IN_CARD = ("data", "models", "ensembles", "plan", "paper")
_CELL_COLUMNS = ["model", "method", "strategy", "batch_size", "corruption", "severity", "order", "seed"]
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
        return not _parquet_files(self.folder) and not _parquet_files(self._parts)

    def add(self, result: UnitResult) -> None:
        for name, table in tables_of(result).items():
            write_table(self._parts / f"{name}-{result.unit.name}.parquet", table)

    def done(self, *, hits: bool = False, predictions: bool = False) -> set[tuple[Any, ...]]:
        """All finished cells: (model, method, strategy, batch size, corruption, severity, order, seed).

        These are the cells that have results and a reliability diagram and, if they are asked for, hits and predictions
        too.
        """
        optional = {"hits": hits, "predictions": predictions, "fits": False}
        wanted = [name for name in TABLES if optional.get(name, True)]
        return self._read_steadily(lambda: set.intersection(*(self._cells(name) for name in wanted)))

    def _cells(self, name: str) -> set[tuple[Any, ...]]:
        tables = (read_table(path, TABLES[name].schema).select(_CELL_COLUMNS) for path in self._files(name))
        return {tuple(row.values()) for table in tables for row in _unique(table, _CELL_COLUMNS).to_pylist()}

    def fits(self) -> list[Fit]:
        return [Fit(**row) for row in self._read_steadily(lambda: self._read("fits")).to_pylist()]

    def tables(self) -> dict[str, pa.Table]:
        """All tables by name: everything that is finished, sorted, without duplicates."""
        return self._read_steadily(lambda: {name: self._read(name) for name in TABLES})

    def _read(self, name: str) -> pa.Table:
        schema, columns = TABLES[name]
        table = pa.concat_tables([schema.empty_table(), *(read_table(path, schema) for path in self._files(name))])
        return _unique(table, columns).sort_by([(column, "ascending") for column in columns])

    def examples(self) -> pa.Table:
        """The example pictures; no rows if there are none."""
        try:
            return read_table(self.folder / _EXAMPLES_FILE, EXAMPLES)
        except FileNotFoundError:
            return EXAMPLES.empty_table()

    def write_examples(self, table: pa.Table) -> None:
        write_table(self.folder / _EXAMPLES_FILE, table)

    def merge(self) -> None:
        """Move all parts into the tables."""
        merged = _parquet_files(self._parts)
        if not merged:
            return
        for name, table in self.tables().items():
            if len(table) or name in ("results", "reliability"):
                write_table(self.folder / f"{name}.parquet", table)
        # Only now, when every row is in a table: killed before this line, the parts are still complete; killed after
        # it, what they held is in the tables.
        sync_folder(self.folder)
        for path in merged:
            path.unlink()

    def _read_steadily(self, read: Callable[[], T]) -> T:
        """What `read` returns when no part is removed while it reads: parts are read before their table, so that a
        row is in one of them, or in both."""
        for _ in range(_ATTEMPTS):
            try:
                return read()
            except FileNotFoundError:
                time.sleep(_PAUSE)
        raise EvaluationError(f"{self.folder} changes while it is read: wait for the run that writes to it.")

    def _files(self, name: str) -> list[Path]:
        """The files that hold rows of a table: its parts, and the table itself."""
        parts = [part for part in _parquet_files(self._parts) if part.name.startswith(f"{name}-")]
        return [*parts, *(table for table in _parquet_files(self.folder) if table.stem == name)]


def _parquet_files(folder: Path) -> list[Path]:
    """The tables in a folder; none if there is no folder. A folder that may not be read is an error, not empty."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EvaluationError(f"{folder} cannot be read ({error.strerror}): check its permissions.") from None
    return sorted(folder / name for name in names if name.endswith(".parquet"))


def _unique(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The table without rows whose values in these columns occurred before."""
    numbered = table.select(columns).append_column("row", pa.array(np.arange(len(table))))
    first = numbered.group_by(columns, use_threads=False).aggregate([("row", "min")])["row_min"]
    return table if len(first) == len(table) else table.take(first.combine_chunks().sort())
