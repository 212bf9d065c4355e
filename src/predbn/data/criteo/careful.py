"""Lines of any kind to a table of int32, value by value, and a reason for each line that is no row.

pyarrow separates the columns (quotes, line ends of other systems, columns in any order and more of them); every value
is then looked at. It is several times slower than `fast`, which hands it what is not regular.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from .columns import CATEGORIES, COLUMNS, LABEL, MISSING_NUMBER, MISSING_TOKEN, WIDTH
from .source import Rejected
from .tokens import token_of

__all__ = ["parse_any"]

Table = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"


def parse_any(
    text: bytes, columns: Sequence[str], delimiter: str, *, quoted: bool, where: Mapping[str, str]
) -> tuple[Table, int, list[Rejected]]:
    """The rows, the number of lines, and those left out. With `where`, rows with other values there are left out too,
    and not counted among them."""
    read, rejected = _read(text, columns, delimiter, quoted, where)
    count = len(read) + len(rejected)
    lines = np.delete(np.arange(1, count + 1), [each.line - 1 for each in rejected])
    table = np.empty((len(read), WIDTH), np.int32)
    whole = np.ones(len(read), np.bool_)
    for place, name in enumerate(COLUMNS):
        column = read[name].combine_chunks()
        if name in CATEGORIES:
            table[:, place] = _tokens(column)
            continue
        table[:, place], fits = _numbers(column)
        for row in np.flatnonzero(whole & ~fits).tolist():
            rejected.append(Rejected(int(lines[row]), f"{name} is {column[row].as_py()!r}, no whole number"))
        whole &= fits
    for row in np.flatnonzero(whole & (table[:, 0] != 0) & (table[:, 0] != 1)).tolist():
        label = read[LABEL][row].as_py()
        empty = label is None and all(read[name][row].as_py() is None for name in COLUMNS)
        why = "the line is empty" if empty else f"{LABEL} is {label or ''!r}, neither 0 nor 1"
        rejected.append(Rejected(int(lines[row]), why))
        whole[row] = False
    for name, value in where.items():
        whole &= pyarrow.compute.equal(read[name].combine_chunks(), value).fill_null(False).to_numpy(False)
    return table[whole], count, sorted(rejected)


def _read(
    text: bytes, columns: Sequence[str], delimiter: str, quoted: bool, where: Mapping[str, str]
) -> tuple[Any, list[Rejected]]:
    rejected: list[Rejected] = []

    def reject(row: Any) -> str:
        found, wanted = row.actual_columns, row.expected_columns
        rejected.append(Rejected(row.number, f"the line has {found} columns where there must be {wanted}"))
        return "skip"

    wanted = [*COLUMNS, *where]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(columns)),
        pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if quoted else False,
            ignore_empty_lines=False,
            invalid_row_handler=reject,
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
            check_utf8=False,
        ),
    )
    return table, rejected


def _numbers(column: Any) -> tuple[Table, Flags]:
    """The numbers, and which are whole numbers of 32 bits or missing."""
    shaped = pyarrow.compute.match_substring_regex(column, _WHOLE).fill_null(False)
    values = pyarrow.compute.if_else(shaped, column, "0").cast(pa.float64()).to_numpy()
    missing = column.is_null().to_numpy(zero_copy_only=False)
    fits = shaped.to_numpy(zero_copy_only=False) & (np.abs(values) < 2**31)
    return np.where(fits, values, MISSING_NUMBER).astype(np.int32), fits | missing


def _tokens(column: Any) -> Table:
    coded = column.cast(pa.binary()).dictionary_encode()
    tokens = np.array([token_of(value) for value in coded.dictionary.to_pylist()] or [MISSING_TOKEN], np.int32)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, MISSING_TOKEN, tokens[coded.indices.fill_null(0).to_numpy()])
