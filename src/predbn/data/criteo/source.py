"""The text file that rows are prepared from: Kaggle's `train.txt`, or a CSV file with a header, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from predbn.common import DataError

from ..reading import readable
from .columns import COLUMNS, LABEL, WIDTH

_GZIP_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)
_MAX_HEADER = 1 << 16
_MAX_LINE = 1 << 20


class TextBlock(NamedTuple):
    """Whole lines, and where in the file (in its uncompressed text) they begin."""

    begins: int
    text: bytes

    @property
    def ends(self) -> int:
        """Where the next block begins."""
        return self.begins + len(self.text)


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
        return self.begins > 0

    @property
    def is_gzipped(self) -> bool:
        return _is_gzipped(self.path)

    def blocks(self, size: int) -> Iterator[TextBlock]:
        """The rows in blocks of `size` bytes and the rest of the last line."""
        begins = self.begins
        with readable(self.path):
            try:
                with _open(self.path) as file:
                    file.seek(begins)
                    while text := file.read(size):
                        rest = file.readline(_MAX_LINE)
                        if len(rest) == _MAX_LINE and not rest.endswith(b"\n"):
                            raise DataError(
                                f"{self.path} has no line end in the megabyte after byte {begins + len(text)}: it "
                                "does not hold rows."
                            )
                        yield TextBlock(begins, text + rest)
                        begins += len(text) + len(rest)
            except _GZIP_ERRORS as error:
                raise DataError(
                    f"{self.path} cannot be read to its end ({error}): it may be incomplete, get it again."
                ) from None


def open_source(path: str | Path) -> TextSource:
    """Find out the layout of a file (or of `train.txt` or `train.txt.gz` in a folder) from its first line."""
    file_path = _find_file(Path(path).expanduser())
    advice = "give train.txt or a CSV file, plain or gzipped"
    with readable(file_path):
        try:
            with _open(file_path) as file:
                line = file.readline(_MAX_HEADER)
        except _GZIP_ERRORS as error:
            raise DataError(f"{file_path} cannot be read ({error}): {advice}.") from None
    if len(line) == _MAX_HEADER and not line.endswith(b"\n"):
        raise DataError(f"{file_path} has no line end in its first {_MAX_HEADER:,} bytes: it does not hold rows.")
    try:
        header = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise DataError(f"{file_path} is not text: {advice}.") from None
    delimiter = "\t" if "\t" in header else ","
    cells = [cell.strip().strip('"') for cell in header.split(delimiter)]
    spelling = {name.lower(): name for name in COLUMNS}
    columns = tuple(spelling.get(cell.lower(), cell) for cell in cells)
    if LABEL in columns:
        missing = next((name for name in COLUMNS if name not in columns), None)
        if missing:
            raise DataError(f"{file_path} has no column {missing}: its header must name {LABEL}, I1 … I13, C1 … C26.")
        repeated = next((name for position, name in enumerate(columns) if name in columns[:position]), None)
        if repeated is not None:
            raise DataError(f"{file_path} has two columns {repeated!r} in its header: rename or remove one of them.")
        return TextSource(file_path, delimiter, columns, len(line))
    if len(cells) != WIDTH:
        hint = "it seems to be test.txt, which has no labels; use train.txt"
        if len(cells) != WIDTH - 1:
            hint = (
                f"expected {WIDTH}, separated by tabs (label, 13 numbers, 26 categories), or a header that names them"
            )
        raise DataError(f"{file_path} has {len(cells)} columns: {hint}.")
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
