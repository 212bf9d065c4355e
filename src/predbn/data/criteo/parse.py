"""Lines of text as a table, and a reason for every line that is not a row.

pyarrow divides the lines into columns, all of which it reads as text; numbers are parsed here. Two things must not
reach it: a quote that is not closed, with which it would read on in the next lines, and bytes that are not UTF-8, with
which it fails on a line that has too many columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

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


def parse(text: bytes, source: TextSource, where: Mapping[str, str]) -> Parsed:
    """Read whole lines. With `where`, keep only the rows that have these values in these columns."""
    names = tuple(dict.fromkeys((*COLUMNS, *where)))
    columns, rejected = _divide(text, source, names)
    lines = len(columns[LABEL]) + len(rejected)
    line_of_row = np.delete(np.arange(1, lines + 1), [line - 1 for line, _ in rejected])
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


def _divide(text: bytes, source: TextSource, names: tuple[str, ...]) -> tuple[dict[str, Any], list[Rejected]]:
    """The columns of these names as binary arrays of pyarrow, and the lines that cannot be divided into columns."""
    import pyarrow as pa
    import pyarrow.csv

    text = text.decode(errors="replace").encode()
    rejected: list[Rejected] = []
    open_quotes: set[int] = set()
    if source.has_header and b'"' in text:
        lines, delimiter = text.split(b"\n"), source.delimiter.encode()
        field = rb'(?:"[^"]*(?:""[^"]*)*"|(?!")[^%b]*)' % delimiter
        is_closed = re.compile(rb"%b(?:%b%b)*\r?" % (field, delimiter, field)).fullmatch
        open_quotes = {number for number, line in enumerate(lines, 1) if b'"' in line and not is_closed(line)}
        # Two columns, which are too few.
        text = b"\n".join(delimiter if number in open_quotes else line for number, line in enumerate(lines, 1))

    def reject(row: Any) -> str:
        reason = f"the line has {row.actual_columns} columns instead of {row.expected_columns}"
        rejected.append(Rejected(row.number, "a quote is not closed" if row.number in open_quotes else reason))
        return "skip"

    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(source.columns)),
        pyarrow.csv.ParseOptions(
            delimiter=source.delimiter,
            quote_char='"' if source.has_header else False,
            ignore_empty_lines=False,
            invalid_row_handler=reject,
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()), include_columns=list(names), strings_can_be_null=False
        ),
    )
    return {name: table[name].combine_chunks() for name in names}, rejected


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
