"""Atomic files and folder locks.

A file is written under a temporary name, flushed to the disk and then renamed. Renaming is a single step, so that a
reader, or the next run after a crash, finds either the whole file or none. With a checksum inside (`checksums.py`), a
file that changes later is noticed. A lock keeps two processes from writing to the same folder.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .checksums import CHECKSUM_FIELD, write_checksum
from .errors import PredbnError

PARTIAL_SUFFIX = ".part"


def partial_path(path: Path) -> Path:
    """The temporary name under which a file is written."""
    return path.with_name(path.name + PARTIAL_SUFFIX)


def finish_partial(partial: Path, path: Path) -> None:
    """Flush the temporary file of `path` to the disk and rename it to `path`."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(path)


@contextmanager
def atomic_write(path: Path, *, checksum: bool = False, is_shared: bool = False) -> Iterator[Path]:
    """Give the temporary path to write to; at the end of the block the file gets its name.

    With `checksum`, the block writes `CHECKSUM_FIELD` into the file, and its checksum is filled in before it gets its
    name. If the block raises, the temporary file is removed and an earlier file of that name stays as it was.

    With `is_shared`, several processes may write the file at the same time: the temporary file has a random name, and
    a killed process leaves it behind. Otherwise the next writer overwrites it.
    """
    partial = partial_path(path.with_name(f"{path.name}.{uuid.uuid4().hex}") if is_shared else path)
    try:
        yield partial
        if checksum:
            write_checksum(partial)
        finish_partial(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        # torch.save raises a RuntimeError of its own when writing fails.
        failure = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(failure, OSError) and failure.errno is not None and failure.filename is None:
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
    """Write a .npy file atomically, with a checksum after the array."""
    with atomic_write(path, checksum=True) as partial, partial.open("wb") as file:
        np.save(file, array)
        file.write(CHECKSUM_FIELD.encode())


def write_array_in_parts(
    path: Path, parts: Iterable[npt.NDArray[Any]], *, dtype: str, row_shape: tuple[int, ...]
) -> int:
    """Write arrays [n, *row_shape] one after another as one .npy file, atomically and with a checksum after it.

    Returns the number of rows. The header is written again at the end, when it is known; numpy pads it so that its
    length is the same for any number. Not through a memory map: on a full disk that ends the process.
    """
    rows = 0
    with atomic_write(path, checksum=True) as partial, partial.open("wb") as file:
        header = {"descr": dtype, "fortran_order": False, "shape": (rows, *row_shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype).data)
            rows += len(part)
        file.write(CHECKSUM_FIELD.encode())
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, *row_shape)})
    return rows


def sync_folder(folder: Path) -> None:
    """Make sure that the files which got their names in a folder keep them if the power fails.

    Called before the only other copy of what they contain is deleted. Windows has no such call and needs none.
    """
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def lock_folder(
    folder: Path, *, run: str = "", wait: bool = False, error: type[PredbnError] = PredbnError
) -> Iterator[None]:
    """Keep other processes out of a folder, or out of the files of one `run` in it. The folder is made if needed.

    If another process has the lock, wait for it with `wait`; otherwise raise `error`. The lock of a killed process is
    released. The empty lock file stays: a process that is about to lock it would otherwise lock a deleted file.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / (f".{run}.lock" if run else ".lock"))
    target = folder / run
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise error(f"another process is writing to {target}: wait for it, or choose another folder.") from None
    except OSError as reason:
        raise error(f"{folder} cannot be written to ({reason.strerror}): choose another folder.") from None
    try:
        yield
    finally:
        lock.release()
