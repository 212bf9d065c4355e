"""The text as blocks of whole lines: Kaggle's `train.txt`, or a CSV file with a header, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from ..errors import DataError
from .columns import COLUMNS, LABEL, WIDTH

__all__ = ["PAD", "Block", "Rejected", "Source", "open_source"]

PAD = 8
"""How many bytes there are before and after a text, so that each of its bytes begins and ends a 64-bit word."""

_HEAD = 1 << 16
_LONGEST_LINE = 1 << 20


class Block(NamedTuple):
    """Whole lines, with PAD bytes of anything before and at least as many after them.

    They are the bytes `begins` to `ends` of the unpacked text.
    """

    padded: bytearray
    begins: int
    ends: int


class Rejected(NamedTuple):
    """A line that is no row, and why; lines are counted from 1."""

    line: int
    why: str


@dataclass(frozen=True)
class Source:
    """A file of rows: where it is, what separates its columns, and what they are called.

    `begins` is where the first row is, after the header if there is one.
    """

    path: Path
    delimiter: str
    columns: tuple[str, ...]
    begins: int

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns."""
        return self.begins > 0

    @property
    def is_packed(self) -> bool:
        """Whether the file is gzipped."""
        return _is_packed(self.path)

    def blocks(self, size: int, *, begins: int | None = None) -> Iterator[Block]:
        """The rows in blocks of at most `size` bytes (or one longer line), from the start or from where an earlier
        block ended. What is in a block follows from where it begins."""
        place = self.begins if begins is None else begins
        try:
            with _open(self.path) as file:
                _skip(file, place, packed=self.is_packed)
                rest = b""
                at_end = False
                while not at_end:
                    room = size if len(rest) < size else len(rest) + size
                    padded, filled = bytearray(PAD + room + PAD), PAD + len(rest)
                    padded[PAD:filled] = rest
                    filled += _fill(file, memoryview(padded)[filled:-PAD])
                    at_end = filled < PAD + room
                    end = filled if at_end else padded.rfind(b"\n", PAD, filled) + 1 or PAD
                    rest = _checked(bytes(padded[end:filled]), self.path, place)
                    if end > PAD:
                        yield Block(padded, place, place + end - PAD)
                        place += end - PAD
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self.path} cannot be read to its end ({error}): it may be cut off; get it again."
            ) from None


def open_source(path: str | Path) -> Source:
    """Look at the head of a file (or of `train.txt` or `train.txt.gz` in a folder) and say how it is laid out."""
    place = _file_at(Path(path).expanduser())
    try:
        with _open(place) as file:
            head = file.read(_HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{place} cannot be read ({error}): give train.txt or a CSV file, plain or gzipped.") from None
    line, _, _ = head.partition(b"\n")
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise DataError(f"{place} is no text: give train.txt or a CSV file, plain or gzipped.") from None
    delimiter = "\t" if "\t" in text else ","
    cells = [cell.strip().strip('"') for cell in text.split(delimiter)]
    found = _named(cells)
    if LABEL in found:
        missing = [name for name in COLUMNS if name not in found]
        if missing:
            raise DataError(f"{place} has no column {missing[0]}: its header must name {LABEL}, I1 … I13, C1 … C26.")
        return Source(place, delimiter, tuple(found), len(line) + 1)
    if len(cells) == WIDTH - 1:
        raise DataError(
            f"{place} has {WIDTH - 1} columns: it seems to be test.txt, which has no labels; use train.txt."
        )
    if len(cells) != WIDTH:
        raise DataError(
            f"{place} begins with {len(cells)} columns: it must be tab-separated with {WIDTH} (label, 13 numbers, "
            "26 categories), or have a header that names them."
        )
    return Source(place, delimiter, COLUMNS, 0)


def _named(cells: list[str]) -> list[str]:
    """The cells of a header with our spelling of the columns, whatever their case."""
    ours = {name.lower(): name for name in COLUMNS}
    return [ours.get(cell.lower(), cell) for cell in cells]


def _file_at(path: Path) -> Path:
    if path.is_dir():
        for name in ("train.txt", "train.txt.gz"):
            if (path / name).is_file():
                return path / name
        raise DataError(f"{path} holds neither train.txt nor train.txt.gz: name the file itself.")
    if not path.is_file():
        raise DataError(f"{path} does not exist: give train.txt or a CSV file, plain or gzipped.")
    return path


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if _is_packed(path) else path.open("rb", buffering=0)


def _skip(file: BinaryIO, count: int, *, packed: bool) -> None:
    """Go to a place in the text; what is packed has to be unpacked up to there."""
    if not packed:
        file.seek(count)
        return
    while count and (piece := file.read(min(count, 1 << 24))):
        count -= len(piece)


def _fill(file: BinaryIO, room: memoryview) -> int:
    """Read until the room is full or the file at its end."""
    filled = 0
    while filled < len(room) and (count := file.readinto(room[filled:])):  # type: ignore[attr-defined]
        filled += count
    return filled


def _checked(rest: bytes, path: Path, place: int) -> bytes:
    if len(rest) > _LONGEST_LINE:
        raise DataError(f"{path} has no end of line in the megabyte after byte {place}: it is no file of rows.")
    return rest
