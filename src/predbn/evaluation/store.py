"""The folder of a run: parts while it is computed, whole tables when it is done.

    plan.toml            the last plan
    card.json            what one needs to repeat the run
    results.parquet      one row per metric   } all that is finished, sorted: the same bytes whatever the order
    reliability.parquet  one row per bin      } in which units finished
    hits.parquet         which images were predicted correctly, if the plan wants it
    fits.parquet         temperatures and eps found on validation data
    parts/               what was computed since the last merge: one file per unit

A run can be killed at any moment and loses only the unit that was being computed:

- A file gets its name when it is complete.
- `merge` first writes all tables and then removes the parts. If it is killed in between, rows are in a table and in a
  part. Both copies are the same, and readers drop one of them, so the next merge gives the tables of an
  uninterrupted run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from predbn.common import EvaluationError, atomic_write, lock_folder

from .tables import FITS, HITS, KEYS, PART, RELIABILITY, RESULTS, fits_table, part_table, tidy_tables
from .units import Fit, UnitResult

_TABLES = {
    "results": (RESULTS, (*KEYS, "metric")),
    "reliability": (RELIABILITY, (*KEYS, "bin")),
    "hits": (HITS, KEYS),
}
"""The schema of each table, and the columns that identify a row and sort the table."""
_DONE_COLUMNS = ["model", "method", "strategy", "batch_size", "corruption", "severity", "order", "seed"]


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
        path = self.folder / "card.json"
        if not path.exists():
            return None
        try:
            card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise EvaluationError(f"{path} cannot be read ({error}): the run must be computed again.") from None
        return card

    def add(self, result: UnitResult) -> None:
        """Keep the result of a unit."""
        if result.fits:
            _write(self._parts / f"fit-{result.unit.name}.parquet", fits_table(result.fits))
        if result.rows:
            _write(self._parts / f"{result.unit.name}.parquet", part_table(result.rows))

    def done(self) -> set[tuple[Any, ...]]:
        """All finished cells: (model, method, strategy, batch size, corruption, severity, order, seed)."""
        tables = [_read(path, PART).select(_DONE_COLUMNS) for path in self._split_parts()]
        tables += [_read(path, RESULTS).select(_DONE_COLUMNS) for path in self._table_files("results")]
        return {tuple(row.values()) for table in tables for row in _unique(table, _DONE_COLUMNS).to_pylist()}

    def fits(self) -> list[Fit]:
        """All fits found so far."""
        paths = [*self._table_files("fits"), *sorted(self._parts.glob("fit-*.parquet"))]
        fits = {Fit(**row): None for path in paths for row in _read(path, FITS).to_pylist()}
        return sorted(fits, key=lambda fit: fit[:4])

    def tables(self) -> dict[str, pa.Table]:
        """The tables `results`, `reliability` and `hits`: everything that is finished, sorted, without duplicates."""
        parts = [tidy_tables(_read(path, PART)) for path in self._split_parts()]
        tables = {}
        for name, (schema, columns) in _TABLES.items():
            pieces = [_read(path, schema) for path in self._table_files(name)] + [part[name] for part in parts]
            table = pa.concat_tables([schema.empty_table(), *pieces])
            # Only a merge that was killed leaves duplicates, and then there are parts.
            table = _unique(table, columns) if parts else table
            tables[name] = table.sort_by([(column, "ascending") for column in columns])
        return tables

    def merge(self) -> None:
        """Move all parts into the tables."""
        merged = sorted(self._parts.glob("*.parquet"))
        for name, table in self.tables().items():
            if name != "hits" or len(table):
                _write(self.folder / f"{name}.parquet", table)
        fits = self.fits()
        if fits:
            _write(self.folder / "fits.parquet", fits_table(fits))
        # Only now, when every row is in a table: killed before this line, the parts are still complete; killed after
        # it, what they held is in the tables.
        for path in merged:
            path.unlink()

    def _table_files(self, name: str) -> list[Path]:
        path = self.folder / f"{name}.parquet"
        return [path] if path.exists() else []

    def _split_parts(self) -> list[Path]:
        return sorted(path for path in self._parts.glob("*.parquet") if not path.name.startswith("fit-"))


def _write(path: Path, table: pa.Table) -> None:
    with atomic_write(path) as part:
        pq.write_table(table, part)


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise EvaluationError(f"{path} is damaged ({reason}): remove it, and run the same command again.") from None
    if table.schema.names != schema.names:
        columns = ", ".join(table.schema.names)
        raise EvaluationError(f"{path} is not a table of results: it has the columns {columns}.")
    return table.cast(schema)


def _unique(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The table without rows whose values in these columns occurred before."""
    numbered = table.select(columns).append_column("row", pa.array(np.arange(len(table))))
    first = numbered.group_by(columns, use_threads=False).aggregate([("row", "min")])["row_min"]
    return table if len(first) == len(table) else table.take(first.combine_chunks().sort())
