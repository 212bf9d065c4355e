"""Atomic files and folder locks.

A file is written under a temporary name, brought to the disk and then renamed, which is one step: a reader, or the
next run after a crash, finds the whole file or none. A lock keeps two processes from writing to one folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .errors import PredbnError

__all__ = ["PART", "atomic_write", "finish", "lock_folder", "part_of", "write_array", "write_bytes", "write_text"]

PART = ".part"
LOCK = ".lock"


def part_of(path: Path) -> Path:
    """The temporary name under which a file is written."""
    return path.with_name(path.name + PART)


def finish(path: Path) -> None:
    """Flush the temporary file of `path` to the disk and rename it."""
    with part_of(path).open("rb+") as file:
        os.fsync(file.fileno())
    part_of(path).replace(path)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Gives the temporary path to write to; at the end of the block the file gets its name.

    If the block raises, the temporary file is removed and an earlier file of that name stays as it was.
    """
    try:
        yield part_of(path)
        finish(path)
    except BaseException:
        part_of(path).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file atomically."""
    with atomic_write(path) as part:
        part.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically, in UTF-8 and with its line ends as given."""
    write_bytes(path, text.encode())


def write_array(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Write a .npy file atomically."""
    with atomic_write(path) as part, part.open("wb") as file:
        np.save(file, array)


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False, error: type[PredbnError] = PredbnError) -> Iterator[None]:
    """Keep other processes out of a folder, which must exist. A killed process loses its lock.

    If another process has the lock: with `wait`, wait for it; otherwise raise `error`.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise error(f"another process is writing to {folder}: wait for it, or choose another folder.") from None
    try:
        yield
    finally:
        lock.release()
