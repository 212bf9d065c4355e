"""The text as blocks of whole lines: Kaggle's `train.txt`, or a CSV file with a header, plain or gzipped.

A block of a plain file is only where it begins and ends: whoever works on it reads it. Of a gzipped file it is the
unpacked text itself.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from predbn.common import DataError

from .columns import COLUMNS, LABEL, WIDTH

__all__ = ["Block", "Rejected", "Source", "open_source"]

_HEAD = 1 << 16
_LONGEST_LINE = 1 << 20


class Block(NamedTuple):
    """Whole lines: the bytes `begins` to `ends` of the unpacked text, and these bytes where they had to be unpacked."""

    begins: int
    ends: int
    text: bytes | None = None


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
        begins = self.begins if begins is None else begins
        try:
            with _open(self.path) as file:
                yield from self._unpacked(file, size, begins) if self.is_packed else self._marked(file, size, begins)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self.path} cannot be read to its end ({error}): it may be cut off; get it again."
            ) from None

    def open(self, block: Block) -> BinaryIO:
        """The text of a block from its beginning on; of a plain file also what comes after it."""
        if block.text is not None:
            return io.BytesIO(block.text)
        file = self.path.open("rb", buffering=0)
        file.seek(block.begins)
        return cast(BinaryIO, file)

    def _marked(self, file: BinaryIO, size: int, begins: int) -> Iterator[Block]:
        """Blocks of a plain file, of which only the ends are looked at."""
        length = self.path.stat().st_size
        while begins < length:
            ends = _last_line_end(file, begins, begins + size) if begins + size < length else length
            beyond = begins + size
            while not ends:
                self._check_line(begins, beyond)
                file.seek(beyond)
                piece = file.read(_HEAD)
                ends = beyond + piece.find(b"\n") + 1 if b"\n" in piece else 0 if piece else length
                beyond += len(piece)
            yield Block(begins, ends)
            begins = ends

    def _unpacked(self, file: BinaryIO, size: int, begins: int) -> Iterator[Block]:
        """Blocks of a gzipped file, unpacked from its start."""
        skipped = 0
        while skipped < begins and (piece := file.read(min(begins - skipped, size))):
            skipped += len(piece)
        rest, at_end = b"", False
        while not at_end:
            room = size if len(rest) < size else len(rest) + size
            text = rest + file.read(room - len(rest))
            at_end = len(text) < room
            end = len(text) if at_end else text.rfind(b"\n") + 1
            rest = text[end:]
            if end:
                yield Block(begins, begins + end, text[:end])
                begins += end
            self._check_line(begins, begins + len(rest))

    def _check_line(self, begins: int, ends: int) -> None:
        if ends - begins > _LONGEST_LINE:
            raise DataError(f"{self.path} has no end of line in the megabyte after byte {begins}: these are no rows.")


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


def _last_line_end(file: BinaryIO, begins: int, before: int) -> int:
    """Where the last line that ends before a place ends, 0 where none does after `begins`; looked for from behind."""
    high = before
    while high > begins:
        low = max(begins, high - _HEAD)
        file.seek(low)
        found = file.read(high - low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        high = low
    return 0
