"""Reading files that others made: how much memory one of them may take, and why a file cannot be read.

A few kilobytes of a picture or an archive can unpack to any number of bytes, so the size is compared with a limit
before anything is unpacked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from predbn.common import DataError

MAX_BYTES = 1 << 29
"""What one picture, or one file of an archive, may take in memory: 512 MiB, a picture of 13,377 × 13,377 pixels. Pillow
refuses larger pictures by itself."""


def in_one_line(error: BaseException) -> str:
    """What a decoder says about a damaged file, in one line that is not too long."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{text[:150]}…" if len(text) > 150 else text or type(error).__name__


def why_too_large(size: int) -> tuple[str, str] | None:
    """The reason and the remedy if something takes more bytes than the limit; None if it does not."""
    if size <= MAX_BYTES:
        return None
    return f"it takes {size:,} bytes of memory and the limit is {MAX_BYTES:,}", "make it smaller"


def why_unreadable(error: OSError) -> tuple[str, str]:
    """The reason that the system gives, and the remedy. Such a file is not damaged: it must not be called that."""
    reason = error.strerror or str(error)
    if isinstance(error, PermissionError):
        return reason, "change its permissions or those of its folder"
    if isinstance(error, FileNotFoundError):
        return reason, "it may have been moved, or is a link to a file that does not exist"
    return reason, "check the disk that it is on"


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turn what the system says about a file or a folder into a DataError."""
    try:
        yield
    except OSError as error:
        reason, remedy = why_unreadable(error)
        raise DataError(f"{error.filename or path} cannot be read ({reason}): {remedy}.") from None


def check_regular(path: str | Path) -> None:
    """Raise a DataError if this is no regular file: reading a pipe or a device may never end."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise DataError(f"{path} is a {'folder' if stat.S_ISDIR(mode) else 'pipe or a device'}, but must be a file.")
