"""The text file that rows are prepared from: Kaggle's `train.txt`, or a CSV file with a header, plain or gzipped.

The file is divided into blocks of whole lines. A block of a plain file only says where it begins and ends, and the
process that works on it reads the text; a block of a gzipped file is the decompressed text itself.
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

from ..reading import readable
from .columns import COLUMNS, LABEL, WIDTH

PIECE = 1 << 18
"""Bytes of text that are parsed at once: with all intermediate arrays, they fit the cache of a core."""

PADDING = 8
"""Bytes before and after the text of a piece, so that a 64-bit word can end at its first or begin at its last byte."""

_GZIP_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)
_READ_SIZE = 1 << 16
_LONGEST_LINE = 1 << 20


class TextBlock(NamedTuple):
    """Whole lines: the bytes `begins` to `ends` of the text, and the text itself if the file is gzipped."""

    begins: int
    ends: int
    text: bytes | None = None


class Piece(NamedTuple):
    """Whole lines, from PADDING to `end` of a buffer that all pieces of a block share: the next one overwrites them."""

    buffer: bytearray
    end: int

    @property
    def text(self) -> bytes:
        """A copy of the lines."""
        return bytes(self.buffer[PADDING : self.end])


@dataclass(frozen=True)
class TextSource:
    """A text file of rows: its path, the delimiter and the names of its columns.

    `begins` is the position of the first row, after the header if there is one.
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
    def is_gzipped(self) -> bool:
        """Whether the file is gzipped."""
        return _is_gzipped(self.path)

    def blocks(self, size: int, *, begins: int | None = None) -> Iterator[TextBlock]:
        """The rows in blocks of at most `size` bytes (more if one line is longer).

        They start at the first row, or where an earlier block ended. A block depends only on where it begins.
        """
        begins = self.begins if begins is None else begins
        with readable(self.path):
            try:
                with _open(self.path) as file:
                    yield from (
                        self._decompressed(file, size, begins) if self.is_gzipped else self._located(file, size, begins)
                    )
            except _GZIP_ERRORS as error:
                raise DataError(
                    f"{self.path} cannot be read to its end ({error}): it may be incomplete, get it again."
                ) from None

    def pieces(self, block: TextBlock, *, size: int = PIECE) -> Iterator[Piece]:
        """The text of a block in pieces of whole lines, of at most `size` bytes (more if one line is longer)."""
        buffer, rest, left = bytearray(PADDING + size + PADDING), 0, block.ends - block.begins
        with readable(self.path), self._open_block(block) as file:
            while left or rest:
                # The buffer begins with the rest of the last piece, an incomplete line; if it is full of it, extend it.
                if rest == len(buffer) - 2 * PADDING:
                    buffer.extend(bytes(size))
                begin = PADDING + rest
                with memoryview(buffer)[begin : min(begin + left, len(buffer) - PADDING)] as room:
                    filled = begin + file.readinto(room)
                left = left - (filled - begin) if filled > begin else 0
                end = buffer.rfind(b"\n", PADDING, filled) + 1 if left else filled
                rest = filled - end if end else filled - PADDING
                if end:
                    yield Piece(buffer, end)
                    buffer[PADDING : PADDING + rest] = buffer[end:filled]

    def _open_block(self, block: TextBlock) -> io.BufferedIOBase:
        if block.text is not None:
            return io.BytesIO(block.text)
        file = self.path.open("rb")
        file.seek(block.begins)
        return file

    def _located(self, file: BinaryIO, size: int, begins: int) -> Iterator[TextBlock]:
        """Blocks of a plain file, of which only the ends are read."""
        length = self.path.stat().st_size
        while begins < length:
            beyond = begins + size
            ends = _last_line_end(file, begins, beyond) if beyond < length else length
            while not ends:
                # The first line is longer than the block: look for its end beyond it.
                self._check_line_length(begins, beyond)
                file.seek(beyond)
                text = file.read(_READ_SIZE)
                ends = beyond + text.find(b"\n") + 1 if b"\n" in text else 0 if text else length
                beyond += len(text)
            yield TextBlock(begins, ends)
            begins = ends

    def _decompressed(self, file: BinaryIO, size: int, begins: int) -> Iterator[TextBlock]:
        """Blocks of a gzipped file, which has to be decompressed from its start."""
        skipped = 0
        while skipped < begins and (text := file.read(min(begins - skipped, size))):
            skipped += len(text)
        text = b""
        while True:
            cut = 0
            if len(text) >= size:
                # After the last line that fits, or after the first line if that is longer.
                cut = text.rfind(b"\n", 0, size) + 1 or text.find(b"\n") + 1
            if not cut:
                if len(text) >= size:
                    self._check_line_length(begins, begins + len(text))
                if more := file.read(size - len(text) % size):
                    text += more
                    continue
                cut = len(text)
            if not cut:
                return
            yield TextBlock(begins, begins + cut, text[:cut])
            begins, text = begins + cut, text[cut:]

    def _check_line_length(self, begins: int, ends: int) -> None:
        if ends - begins > _LONGEST_LINE:
            raise DataError(f"{self.path} has no line end in the megabyte after byte {begins}: it does not hold rows.")


def open_source(path: str | Path) -> TextSource:
    """Find out the layout of a file (or of `train.txt` or `train.txt.gz` in a folder) from its first line."""
    file_path = _find_file(Path(path).expanduser())
    with readable(file_path):
        try:
            with _open(file_path) as file:
                head = file.read(_READ_SIZE)
        except _GZIP_ERRORS as error:
            raise DataError(
                f"{file_path} cannot be read ({error}): give train.txt or a CSV file, plain or gzipped."
            ) from None
    line, _, _ = head.partition(b"\n")
    if len(line) == _READ_SIZE:
        raise DataError(f"{file_path} has no line end in its first {_READ_SIZE:,} bytes: it does not hold rows.")
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise DataError(f"{file_path} is not text: give train.txt or a CSV file, plain or gzipped.") from None
    delimiter = "\t" if "\t" in text else ","
    cells = [cell.strip().strip('"') for cell in text.split(delimiter)]
    own_spelling = {name.lower(): name for name in COLUMNS}
    columns = [own_spelling.get(cell.lower(), cell) for cell in cells]
    if LABEL in columns:
        missing = [name for name in COLUMNS if name not in columns]
        if missing:
            raise DataError(
                f"{file_path} has no column {missing[0]}: its header must name {LABEL}, I1 … I13, C1 … C26."
            )
        for position, name in enumerate(columns):
            if name in columns[:position]:
                raise DataError(f"{file_path} has two columns {name!r} in its header: rename or remove one of them.")
        return TextSource(file_path, delimiter, tuple(columns), len(line) + 1)
    if len(cells) == WIDTH - 1:
        raise DataError(
            f"{file_path} has {WIDTH - 1} columns: it seems to be test.txt, which has no labels; use train.txt."
        )
    if len(cells) != WIDTH:
        raise DataError(
            f"{file_path} begins with {len(cells)} columns: it must be tab-separated with {WIDTH} (label, 13 numbers, "
            "26 categories), or have a header that names them."
        )
    return TextSource(file_path, delimiter, COLUMNS, 0)


def _find_file(path: Path) -> Path:
    if path.is_dir():
        for name in ("train.txt", "train.txt.gz"):
            if (path / name).is_file():
                return path / name
        raise DataError(f"{path} holds neither train.txt nor train.txt.gz: name the file itself.")
    if not path.is_file():
        raise DataError(f"{path} does not exist: give train.txt or a CSV file, plain or gzipped.")
    return path


def _is_gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if _is_gzipped(path) else path.open("rb")


def _last_line_end(file: BinaryIO, begins: int, before: int) -> int:
    """Where the last line ends that ends between `begins` and `before`, searched backwards; 0 if there is none."""
    high = before
    while high > begins:
        low = max(begins, high - _READ_SIZE)
        file.seek(low)
        newline = file.read(high - low).rfind(b"\n")
        if newline >= 0:
            return low + newline + 1
        high = low
    return 0
