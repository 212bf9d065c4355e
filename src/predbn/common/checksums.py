"""Checksums inside files, so that damage is noticed when a file is read.

A file and a checksum beside it cannot be replaced in one step, so the checksum is part of the file. The writer puts
`CHECKSUM_FIELD` where the format has room for a string (metadata of Parquet and safetensors, an entry of JSON, the
comment of a zip file, the end of an .npy file), and `write_checksum` replaces its zeros by the SHA-256 of all other
bytes of the file. `open_checked` computes it again before anything is parsed.

Files without the field, such as those of other programs, are read unchecked. The name is on both sides of the digits:
if one of them is damaged, the other still says that the file has a checksum.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import BinaryIO

from .errors import PredbnError

_DIGITS = 64
CHECKSUM_FIELD = f"predbn-sha256:{'0' * _DIGITS}:predbn-sha256"
_FIELD = re.compile(rb"predbn-sha256:([0-9a-f]{64}):predbn-sha256")
_NAME = re.compile(rb"predbn-sha256:|:predbn-sha256")
_REACH = 1 << 16
"""The field is searched in this many bytes at the beginning and at the end of a file."""
_BLOCK = 1 << 20


def write_checksum(path: Path) -> None:
    """Fill in the checksum of a file that was written with `CHECKSUM_FIELD` near its beginning or its end."""
    with path.open("rb+") as file:
        position = _find_digits(file)
        assert position is not None, f"{path} was written without CHECKSUM_FIELD"
        checksum = _compute(file, position)
        file.seek(position)
        file.write(checksum)


def open_checked(path: Path, *, error: type[PredbnError], remedy: str) -> BinaryIO:
    """Open a file for reading at its beginning, after its checksum was found to be right, if it has one.

    What is read from the returned file is what was checked, even if the file is replaced meanwhile. Raises `error` if
    the file is damaged, with `remedy` as the end of the message, or if it may not be read. A file that does not exist
    is a FileNotFoundError.
    """
    try:
        file = path.open("rb")
        try:
            is_right = has_right_checksum(file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
    except FileNotFoundError:
        raise
    except OSError as reason:
        raise error(
            f"{path} cannot be read ({reason.strerror}): check its permissions and the disk it is on."
        ) from None
    if not is_right:
        file.close()
        raise error(f"{path} is damaged (its content has changed since it was written): {remedy}.")
    return file


def read_checked(path: Path, *, error: type[PredbnError], remedy: str) -> bytes:
    """The content of a file, checked as in `open_checked`."""
    with open_checked(path, error=error, remedy=remedy) as file:
        return file.read()


def has_right_checksum(file: BinaryIO, *, required: bool = False) -> bool:
    """Whether the checksum of an open file is right, or it has none and none is required."""
    position = _find_digits(file)
    return not required if position is None else _digits_at(file, position) == _compute(file, position)


def _find_digits(file: BinaryIO) -> int | None:
    """The position of the digits of the checksum; None if the file has no checksum."""
    end = file.seek(0, os.SEEK_END)
    for start in (0, max(0, end - _REACH)):
        file.seek(start)
        content = file.read(_REACH)
        # The whole field first: the byte of an array in front of it may be a colon, and then both names seem to end it.
        whole = _FIELD.search(content)
        if whole:
            return start + whole.start(1)
        match = _NAME.search(content)
        if match:
            is_before_digits = match[0].endswith(b":")
            return start + match.end() if is_before_digits else max(0, start + match.start() - _DIGITS)
    return None


def _digits_at(file: BinaryIO, position: int) -> bytes:
    file.seek(position)
    return file.read(_DIGITS)


def _compute(file: BinaryIO, position: int) -> bytes:
    """The SHA-256 of everything but the digits at `position`, in hexadecimal digits."""
    checksum = hashlib.sha256()
    end = file.seek(0, os.SEEK_END)
    for start, stop in ((0, position), (position + _DIGITS, end)):
        file.seek(start)
        for begin in range(start, stop, _BLOCK):
            checksum.update(file.read(min(_BLOCK, stop - begin)))
    return checksum.hexdigest().encode()
