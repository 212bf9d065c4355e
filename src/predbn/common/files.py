"""Atomic files and folder locks.

A file is written under a temporary name, flushed to the disk and then renamed. Renaming is a single step, so that a
reader, or the next run after a crash, finds either the whole file or none. A lock keeps two processes from writing to
the same folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .errors import PredbnError

PARTIAL_SUFFIX = ".part"
LOCK = ".lock"


def partial_path(path: Path) -> Path:
    """The temporary name under which a file is written."""
    return path.with_name(path.name + PARTIAL_SUFFIX)


def finish_partial(path: Path) -> None:
    """Flush the temporary file of `path` to the disk and rename it to `path`."""
    partial = partial_path(path)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(path)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give the temporary path to write to; at the end of the block the file gets its name.

    If the block raises, the temporary file is removed and an earlier file of that name stays as it was.
    """
    try:
        yield partial_path(path)
        finish_partial(path)
    except BaseException as error:
        partial_path(path).unlink(missing_ok=True)
        # torch.save raises a RuntimeError of its own when writing fails.
        failure = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(failure, OSError) and failure.filename is None:
            failure.filename = str(path)  # writing to an open file fails without saying which
            raise failure from None
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file atomically."""
    with atomic_write(path) as partial:
        partial.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically, in UTF-8 and without translating line ends."""
    write_bytes(path, text.encode())


def write_array(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Write a .npy file atomically."""
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.save(file, array)


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False, error: type[PredbnError] = PredbnError) -> Iterator[None]:
    """Keep other processes out of a folder, which must exist. The lock of a killed process is released.

    If another process has the lock, wait for it with `wait`; otherwise raise `error`.
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
