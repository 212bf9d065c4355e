"""A block of text as a table of int32: the fast way where its lines are regular, the careful way where they are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import COLUMNS
from .fast import parse_regular
from .source import PAD, Block, Rejected, Source

__all__ = ["Parsed", "parse"]

_PIECE = 1 << 18
"""Bytes looked at together: they and their positions stay in the cache, and one odd line costs no more than these."""

Table = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Parsed:
    """The rows of a block in tables int32 [n, 40], how many lines it had, and those that are no rows, counted from its
    first."""

    tables: list[Table]
    lines: int
    rejected: tuple[Rejected, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(map(len, self.tables))


def parse(block: Block, source: Source, where: Mapping[str, str] | None = None) -> Parsed:
    """Read the lines of a block. With `where`, only rows whose further columns have these values are kept."""
    where = where or {}
    regular = source.columns == COLUMNS and not where
    tables, lines, rejected = list[Table](), 0, list[Rejected]()
    for start, end in _pieces(block):
        table = _regular(block, start, end, source) if regular else None
        count = 0 if table is None else len(table)
        if table is None:
            from .careful import parse_any  # pyarrow is slow to import and seldom needed

            text, options = bytes(block.padded[start:end]), {"quoted": source.has_header, "where": where}
            table, count, wrong = parse_any(text, source.columns, source.delimiter, **options)  # type: ignore[arg-type]
            rejected += [Rejected(lines + line, why) for line, why in wrong]
        tables.append(table)
        lines += count
    return Parsed(tables, lines, tuple(rejected))


def _pieces(block: Block) -> Iterator[tuple[int, int]]:
    """Where whole lines of at most `_PIECE` bytes together begin and end, or one line that is longer."""
    text, start, stop = block.padded, PAD, PAD + block.ends - block.begins
    while start < stop:
        end = text.rfind(b"\n", start, min(start + _PIECE, stop)) + 1 or text.find(b"\n", start, stop) + 1 or stop
        yield start, end
        start = end


def _regular(block: Block, start: int, end: int, source: Source) -> Table | None:
    quoted = source.has_header and block.padded.find(b'"', start, end) >= 0
    if quoted or end - start > _PIECE or block.padded[end - 1 : end] != b"\n":
        return None
    padded = np.frombuffer(block.padded, np.uint8, end - start + 2 * PAD, start - PAD)
    return parse_regular(padded, ord(source.delimiter))
