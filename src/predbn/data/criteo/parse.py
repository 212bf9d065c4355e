"""Lines of text as a table, and a reason for every line that is not a row.

pyarrow divides the lines into columns. A quote that is not closed would make it read on in the next lines, and bytes
that are not UTF-8 make it give up on a line with too many columns. A text with either is divided line by line with
Python's csv module, which is an order of magnitude slower. All columns are read as text; numbers are parsed here.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import (
    CATEGORIES,
    CATEGORY_LENGTH,
    COLUMNS,
    LABEL,
    MISSING_NUMBER,
    MISSING_TOKEN,
    WIDTH,
    hash_words,
    token_of,
)
from .source import TextSource

Table = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_INTEGER = r"^[+-]?[0-9]+(\.0*)?$"


class Rejected(NamedTuple):
    """A line that is not a row, counted from 1, and the reason."""

    line: int
    reason: str


class Parsed(NamedTuple):
    """The rows, int32 [n, 40], the number of lines, and the lines that are not rows."""

    table: Table
    lines: int
    rejected: list[Rejected]


class _Columns(NamedTuple):
    """The columns as binary arrays of pyarrow, the number of the line of each row, and the lines without a row."""

    by_name: Mapping[str, Any]
    line_of_row: npt.NDArray[np.int64]
    rejected: list[Rejected]


def parse(text: bytes, source: TextSource, where: Mapping[str, str]) -> Parsed:
    """Read whole lines. With `where`, keep only the rows that have these values in these columns."""
    names = tuple(dict.fromkeys((*COLUMNS, *where)))
    is_simple = _is_utf8(text) and not (source.has_header and b'"' in text)
    divide = _divide_with_pyarrow if is_simple else _divide_by_line
    columns, line_of_row, rejected = divide(text, source, names)
    lines = len(line_of_row) + len(rejected)
    table = np.empty((len(line_of_row), WIDTH), np.int32)
    is_row = np.ones(len(table), np.bool_)
    for position, name in enumerate(COLUMNS):
        column, values = columns[name], table[:, position]
        if name in CATEGORIES:
            values[:] = _tokens(column)
            continue
        values[:], is_valid = _integers(column)
        expected = "a 32-bit integer"
        if name == LABEL:
            is_valid, expected = np.isin(values, (0, 1)), "0 or 1"
        for row in np.flatnonzero(is_row & ~is_valid).tolist():
            value = column[row].as_py().decode(errors="replace")
            rejected.append(Rejected(int(line_of_row[row]), f"{name} is {value!r}, expected {expected}"))
        is_row &= is_valid
    return Parsed(table[is_row & _matches(columns, where)], lines, sorted(rejected))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _divide_with_pyarrow(text: bytes, source: TextSource, names: tuple[str, ...]) -> _Columns:
    import pyarrow as pa
    import pyarrow.csv

    rejected: list[Rejected] = []

    def reject(row: Any) -> str:
        rejected.append(_wrong_width(row.number, row.actual_columns, row.expected_columns))
        return "skip"

    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(source.columns)),
        pyarrow.csv.ParseOptions(
            delimiter=source.delimiter, quote_char=False, ignore_empty_lines=False, invalid_row_handler=reject
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            include_columns=list(names),
            strings_can_be_null=False,
        ),
    )
    line_of_row = np.arange(1, len(table) + len(rejected) + 1)
    line_of_row = np.delete(line_of_row, [line - 1 for line, _ in rejected])
    return _Columns({name: table[name].combine_chunks() for name in names}, line_of_row, rejected)


def _divide_by_line(text: bytes, source: TextSource, names: tuple[str, ...]) -> _Columns:
    import pyarrow as pa

    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if source.has_header else csv.QUOTE_NONE
    rows, line_of_row, rejected = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        decoded = line.decode(errors="surrogateescape")
        try:
            cells = next(csv.reader([decoded], delimiter=source.delimiter, quoting=quoting, strict=True), [""])
        except csv.Error:
            rejected.append(Rejected(number, "a quote is not closed"))
            continue
        if len(cells) != len(source.columns):
            rejected.append(_wrong_width(number, len(cells), len(source.columns)))
            continue
        rows.append(cells)
        line_of_row.append(number)
    positions = [source.columns.index(name) for name in names]
    columns = {
        name: pa.array([row[position].encode(errors="surrogateescape") for row in rows], pa.binary())
        for name, position in zip(names, positions, strict=True)
    }
    return _Columns(columns, np.array(line_of_row, np.int64), rejected)


def _wrong_width(line: int, actual: int, expected: int) -> Rejected:
    return Rejected(line, f"the line has {actual} columns instead of {expected}")


def _integers(column: Any) -> tuple[Table, Flags]:
    """The integers in a column, and which of its values are 32-bit integers or missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_integer = pc.match_substring_regex(column, _INTEGER)
    values = pc.if_else(is_integer, column, b"0").cast(pa.string()).cast(pa.float64()).to_numpy()
    fits = is_integer.to_numpy(zero_copy_only=False) & (np.abs(values) < 2**31)
    return np.where(fits, values, MISSING_NUMBER).astype(np.int32), fits | (_lengths(column) == 0)


def _tokens(column: Any) -> Table:
    """The tokens of a column of categories."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = _lengths(column)
    words = pc.if_else(pc.equal(pc.binary_length(column), CATEGORY_LENGTH), column, bytes(CATEGORY_LENGTH))
    tokens = hash_words(np.frombuffer(words.cast(pa.binary(CATEGORY_LENGTH)).buffers()[1], "<u8", len(column)))
    tokens[lengths == 0] = MISSING_TOKEN
    for row in np.flatnonzero((lengths != 0) & (lengths != CATEGORY_LENGTH)).tolist():
        tokens[row] = token_of(column[row].as_py())
    return tokens


def _lengths(column: Any) -> npt.NDArray[np.int32]:
    import pyarrow.compute as pc

    lengths: npt.NDArray[np.int32] = pc.binary_length(column).to_numpy()
    return lengths


def _matches(columns: Mapping[str, Any], where: Mapping[str, str]) -> Flags:
    """Which rows have the values of `where`."""
    import pyarrow.compute as pc

    matches = np.ones(len(columns[LABEL]), np.bool_)
    for name, value in where.items():
        matches &= pc.equal(columns[name], value.encode(errors="surrogateescape")).to_numpy(zero_copy_only=False)
    return matches
