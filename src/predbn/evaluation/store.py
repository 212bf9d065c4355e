"""A run's folder: parts while it is computed, whole tables when it is done.

    plan.toml            what was asked for last
    card.json            what one needs to repeat it
    results.parquet      one row a metric     } all that is finished, sorted, the same whatever the order
    reliability.parquet  one row a bin        } in which units came
    hits.parquet         which images were right, where the plan wants it
    fits.parquet         temperatures and eps found on validation data
    parts/               what has been computed since: one file a unit, gone when it is merged

A file appears under its name when it is complete, and a part goes only when the tables that hold its rows are there.
So whatever moment the run is killed at, what is lost is the unit in flight; rows that are in both places are the same.
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

from predbn.common import EvaluationError, finish, part_of

from .tables import FITS, HITS, KEYS, PART, RELIABILITY, RESULTS, fits_table, part_of_rows, tidy
from .units import Fit, UnitResult

__all__ = ["Store"]

_TABLES = {
    "results": (RESULTS, (*KEYS, "metric")),
    "reliability": (RELIABILITY, (*KEYS, "bin")),
    "hits": (HITS, KEYS),
}


class Store:
    """Reads and writes a run's folder. One process writes at a time; anyone may read."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._parts = self.folder / "parts"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make the folder, and keep other runs out of it; the system takes the lock back from a killed process."""
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EvaluationError(f"{self.folder} cannot be written to ({error.strerror}): choose another.") from None
        with (self.folder / ".lock").open("w") as lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # no such locks on this system: two runs at once are then the user's affair
                pass
            except OSError:
                raise EvaluationError(
                    f"another run is writing to {self.folder}: wait for it, or choose another."
                ) from None
            yield

    def card(self) -> dict[str, Any] | None:
        """The run card, or None where there is none yet."""
        path = self.folder / "card.json"
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise EvaluationError(f"{path} cannot be read ({error}): the run must be computed again.") from None
        return found

    def write_text(self, name: str, text: str) -> None:
        """Write a small file whole."""
        path = self.folder / name
        part_of(path).write_text(text, encoding="utf-8")
        finish(path)

    def add(self, result: UnitResult) -> None:
        """Keep what a unit came to."""
        if result.fits:
            self._write(self._parts / f"fit-{result.unit.name}.parquet", fits_table(result.fits))
        if result.rows:
            self._write(self._parts / f"{result.unit.name}.parquet", part_of_rows(result.rows))

    def done(self) -> set[tuple[Any, ...]]:
        """All cells that are there: (model, method, strategy, batch size, corruption, severity, order, seed)."""
        columns = ["model", "method", "strategy", "batch_size", "corruption", "severity", "order", "seed"]
        tables = [_read(path, PART).select(columns) for path in self._split_parts()]
        tables += [_read(path, RESULTS).select(columns) for path in self._whole("results")]
        return {tuple(row.values()) for table in tables for row in _unique(table, columns).to_pylist()}

    def fits(self) -> list[Fit]:
        """All fits that are there."""
        paths = [*self._whole("fits"), *sorted(self._parts.glob("fit-*.parquet"))]
        found = {Fit(**row): None for path in paths for row in _read(path, FITS).to_pylist()}
        return sorted(found, key=lambda fit: fit[:4])

    def tables(self) -> dict[str, pa.Table]:
        """The tables `results`, `reliability` and `hits`: everything that is finished, sorted, each row once."""
        parts = [tidy(_read(path, PART)) for path in self._split_parts()]
        found = {}
        for place, (name, (schema, order)) in enumerate(_TABLES.items()):
            pieces = [_read(path, schema) for path in self._whole(name)] + [part[place] for part in parts]
            table = pa.concat_tables([schema.empty_table(), *pieces])
            found[name] = (_unique(table, order) if parts else table).sort_by(
                [(column, "ascending") for column in order]
            )
        return found

    def merge(self) -> None:
        """Bring all parts into the whole tables."""
        merged = sorted(self._parts.glob("*.parquet"))
        for name, table in self.tables().items():
            if name == "hits" and not len(table):
                continue
            self._write(self.folder / f"{name}.parquet", table)
        fits = self.fits()
        if fits:
            self._write(self.folder / "fits.parquet", fits_table(fits))
        for path in merged:
            path.unlink()

    def _whole(self, name: str) -> list[Path]:
        path = self.folder / f"{name}.parquet"
        return [path] if path.exists() else []

    def _split_parts(self) -> list[Path]:
        return sorted(path for path in self._parts.glob("*.parquet") if not path.name.startswith("fit-"))

    @staticmethod
    def _write(path: Path, table: pa.Table) -> None:
        pq.write_table(table, part_of(path))
        finish(path)


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise EvaluationError(f"{path} is damaged ({reason}): remove it, and run the same command again.") from None
    if table.schema.names != schema.names:
        raise EvaluationError(f"{path} is no table of results: it has the columns {', '.join(table.schema.names)}.")
    return table.cast(schema)


def _unique(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The table without the rows whose values in these columns came before."""
    numbered = table.select(columns).append_column("row", pa.array(np.arange(len(table))))
    first = numbered.group_by(columns, use_threads=False).aggregate([("row", "min")])["row_min"]
    return table if len(first) == len(table) else table.take(first.combine_chunks().sort())
