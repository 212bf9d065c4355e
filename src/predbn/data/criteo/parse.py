"""Pieces of text as tables of int32: the fast way where lines are regular, the careful way where they are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import COLUMNS
from .fast import parse_regular
from .pieces import PAD, Piece
from .source import Rejected, Source

__all__ = ["Parsed", "parse"]


class Parsed(NamedTuple):
    """The rows of a piece, int32 [n, 40], how many lines it has, and those that are no rows, counted from its first."""

    table: npt.NDArray[np.int32]
    lines: int
    rejected: list[Rejected]


def parse(piece: Piece, source: Source, where: Mapping[str, str]) -> Parsed:
    """Read the lines of a piece. Of those, only rows whose further columns have the values in `where` are kept."""
    if source.columns == COLUMNS and not where and not _is_quoted(piece, source):
        padded = np.frombuffer(piece.buffer, np.uint8, piece.end + PAD)
        table = parse_regular(padded, ord(source.delimiter))
        del padded  # a view would keep the buffer from growing
        if table is not None:
            return Parsed(table, len(table), [])
    from .careful import parse_any

    options = {"quoted": source.has_header, "where": where}
    return Parsed(*parse_any(piece.text, source.columns, source.delimiter, **options))  # type: ignore[arg-type]


def _is_quoted(piece: Piece, source: Source) -> bool:
    return source.has_header and piece.buffer.find(b'"', PAD, piece.end) >= 0
