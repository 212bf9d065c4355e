"""Lines of text as tables of int32, and a reason for every line that is not a row.

Regular lines go through a fast parser. If one line of a text is not regular, pyarrow splits the text into columns
(quotes, line ends of other systems, columns in any order and additional ones), and every value is checked, which is
several times slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from predbn.common import DataError

from ..reading import in_one_line
from .columns import CATEGORIES, COLUMNS, LABEL, MISSING_NUMBER, MISSING_TOKEN, WIDTH, token_of
from .parse_regular import parse_regular
from .source import PADDING, Piece, TextSource

Table = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_WHOLE_NUMBER = r"^[+-]?[0-9]+(\.0*)?$"


class Rejected(NamedTuple):
    """A line that is not a row, counted from 1, and the reason."""

    line: int
    reason: str


class Parsed(NamedTuple):
    """The rows of a text, int32 [n, 40], its number of lines, and the lines that are not rows."""

    table: Table
    lines: int
    rejected: list[Rejected]


def parse(piece: Piece, source: TextSource, where: Mapping[str, str]) -> Parsed:
    """Read whole lines. With `where`, keep only the rows that have these values in these additional columns."""
    is_quoted = source.has_header and piece.buffer.find(b'"', PADDING, piece.end) >= 0
    if source.columns == COLUMNS and not where and not is_quoted:
        table = parse_regular(piece, source.delimiter)
        if table is not None:
            return Parsed(table, len(table), [])
    return _parse_any(piece.text, source, where)


def _parse_any(text: bytes, source: TextSource, where: Mapping[str, str]) -> Parsed:
    """The rows of lines of any kind, value by value."""
    import pyarrow as pa

    lines = text.splitlines(keepends=True)
    rejected = _lines_that_pyarrow_cannot_read(text, lines, source)
    numbers = np.delete(np.arange(1, len(lines) + 1), [line - 1 for line, _ in rejected])
    if rejected:
        text = b"".join(lines[number - 1] for number in numbers)
    skipped: list[int] = []

    def skip(row: Any) -> str:
        reason = f"the line has {row.actual_columns} columns instead of {row.expected_columns}"
        rejected.append(Rejected(int(numbers[row.number - 1]), reason))
        skipped.append(row.number - 1)
        return "skip"

    try:
        columns = _read(text, source, where, skip)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{source.path} has lines that cannot be divided into columns ({in_one_line(error)}): correct them."
        ) from None
    if len(columns) + len(skipped) != len(numbers):
        raise DataError(f"{source.path} has lines that cannot be told apart, such as {text[:80]!r}: correct them.")
    numbers = np.delete(numbers, skipped)
    table = np.empty((len(columns), WIDTH), np.int32)
    is_row = np.ones(len(columns), np.bool_)
    for position, name in enumerate(COLUMNS):
        column = columns[name].combine_chunks()
        if name in CATEGORIES:
            table[:, position] = _tokens(column)
            continue
        table[:, position], valid = _whole_numbers(column)
        for row in np.flatnonzero(is_row & ~valid).tolist():
            reason = f"{name} is {_text(column[row])!r}, which is not a whole number"
            rejected.append(Rejected(int(numbers[row]), reason))
        is_row &= valid
    for row in np.flatnonzero(is_row & ~np.isin(table[:, 0], (0, 1))).tolist():
        is_empty = all(not columns[name][row].is_valid for name in COLUMNS)
        reason = "the line is empty" if is_empty else f"{LABEL} is {_text(columns[LABEL][row])!r}, neither 0 nor 1"
        rejected.append(Rejected(int(numbers[row]), reason))
        is_row[row] = False
    return Parsed(table[is_row & _matches(columns, where)], len(lines), sorted(rejected))


def _lines_that_pyarrow_cannot_read(text: bytes, lines: list[bytes], source: TextSource) -> list[Rejected]:
    """Lines that would take others along: pyarrow reads an open quote to the next one, which may be far below.

    A value is quoted if a quote is its first character. Two quotes within it are one, and it ends with the next one.
    Bytes that are not UTF-8 may be part of a category, but make pyarrow give up on a line with too many columns.
    """
    reasons: dict[int, str] = {}
    delimiter = re.escape(source.delimiter.encode())
    rest, quoted = rb"[^%b\r\n]*" % delimiter, rb'"(?:[^"]|"")*"(?!")'
    if source.has_header and b'"' in text:
        value = rb'(?:%b%b|(?!")%b)' % (quoted, rest, rest)
        closed = re.compile(rb"%b(?:%b%b)*[\r\n]*" % (value, delimiter, value))
        open_lines = (number for number, line in enumerate(lines, 1) if b'"' in line and not closed.fullmatch(line))
        reasons = dict.fromkeys(open_lines, "a quote is not closed")
    if not _is_utf8(text):
        begin_of_quoted = re.compile(rb"(^|%b)%b" % (delimiter, quoted))
        for number, line in enumerate(lines, 1):
            if number not in reasons and not _is_utf8(line):
                bare = begin_of_quoted.sub(rb"\1", line) if source.has_header else line
                columns = 1 + bare.count(source.delimiter.encode())
                if columns != len(source.columns):
                    reasons[number] = f"the line has {columns} columns instead of {len(source.columns)}"
    return [Rejected(number, reason) for number, reason in reasons.items()]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(value: Any) -> str:
    """A value of a column of text, which may hold any bytes."""
    content: bytes | None = value.cast("binary").as_py()
    return (content or b"").decode(errors="replace")


def _read(text: bytes, source: TextSource, where: Mapping[str, str], reject: Any) -> Any:
    """The columns that are needed, as text; `reject` is called for lines with another number of columns."""
    import pyarrow as pa
    import pyarrow.csv

    names = list(dict.fromkeys((*COLUMNS, *where)))
    return pyarrow.csv.read_csv(
        pa.BufferReader(text),
        pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(source.columns)),
        pyarrow.csv.ParseOptions(
            delimiter=source.delimiter,
            quote_char='"' if source.has_header else False,
            ignore_empty_lines=False,
            invalid_row_handler=reject,
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names,
            null_values=[""],
            strings_can_be_null=True,
            check_utf8=False,
        ),
    )


def _whole_numbers(column: Any) -> tuple[Table, Flags]:
    """The numbers in a column of text, and which of them are 32-bit whole numbers or missing."""
    import pyarrow as pa
    import pyarrow.compute

    is_whole = pyarrow.compute.match_substring_regex(column, _WHOLE_NUMBER).fill_null(False)
    values = pyarrow.compute.if_else(is_whole, column, "0").cast(pa.float64()).to_numpy()
    is_missing = column.is_null().to_numpy(zero_copy_only=False)
    fits = is_whole.to_numpy(zero_copy_only=False) & (np.abs(values) < 2**31)
    return np.where(fits, values, MISSING_NUMBER).astype(np.int32), fits | is_missing


def _tokens(column: Any) -> Table:
    """The tokens of a column of text, each different text hashed once."""
    import pyarrow as pa

    encoded = column.cast(pa.binary()).dictionary_encode()
    tokens = np.array([token_of(text) for text in encoded.dictionary.to_pylist()] or [MISSING_TOKEN], np.int32)
    is_missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_missing, MISSING_TOKEN, tokens[encoded.indices.fill_null(0).to_numpy()])


def _matches(columns: Any, where: Mapping[str, str]) -> Flags:
    """Which rows have the values of `where`."""
    import pyarrow.compute

    matches = np.ones(len(columns), np.bool_)
    for name, value in where.items():
        values = columns[name].combine_chunks().cast("binary")
        equal = pyarrow.compute.equal(values, value.encode(errors="surrogateescape"))
        matches &= equal.fill_null(False).to_numpy(zero_copy_only=False)
    return matches
