"""The folder of prepared rows.

`source.json` says what the rows are made from and is written first. `rows.npy`, int32 [n, 40], is mapped into memory
when it is used. `criteo.json`, written last, has the counts and the first lines that were rejected. All have a
checksum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from predbn.common import DataError, read_json, write_array_in_parts, write_json

from ..npy import load_array
from .columns import WIDTH

SOURCE, COUNTS, ROWS = "source.json", "criteo.json", "rows.npy"
_REMEDY = "run the same predbn data criteo again, which replaces damaged files"


@dataclass(frozen=True)
class Prepared:
    """The number of rows, of lines of the source, and of rejected lines; the first of these as (line, reason)."""

    synthetic: bool
    rows: int
    lines: int
    rejected: int = 0
    examples: tuple[tuple[int, str], ...] = ()


def read_prepared(folder: Path) -> Prepared:
    """The counts of a folder that is completely prepared."""
    path = folder / COUNTS
    if not path.is_file():
        if (folder / SOURCE).is_file():
            raise DataError(f"{folder} is only partly prepared: run the same predbn data criteo again.")
        raise DataError(
            f"{folder} does not hold prepared rows: prepare them with predbn data criteo --root PATH/TO/train.txt."
        )
    fields = read_json(path, error=DataError, remedy=_REMEDY)
    try:
        examples = tuple((int(line), str(reason)) for line, reason in fields.pop("examples"))
        return Prepared(**{**fields, "examples": examples})
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} does not hold the counts of prepared rows: {_REMEDY}.") from None


def write_prepared(folder: Path, prepared: Prepared) -> None:
    """Mark a folder as completely prepared."""
    write_json(folder / COUNTS, asdict(prepared))


def load_rows(folder: Path, prepared: Prepared) -> npt.NDArray[np.int32]:
    """The rows of a folder, mapped into memory."""
    table, shape = load_array(folder / ROWS), (prepared.rows, WIDTH)
    if table.dtype != np.int32 or table.shape != shape:
        raise DataError(f"{folder / ROWS} is {table.dtype} {table.shape}, but must be int32 {shape}: {_REMEDY}.")
    return table


def write_rows(folder: Path, tables: Iterable[npt.NDArray[np.int32]]) -> int:
    """Write the rows table by table and return their number."""
    return write_array_in_parts(folder / ROWS, tables, dtype="<i4", row_shape=(WIDTH,))
