"""Files appear whole or not at all, and a lock keeps a second process out."""

import errno
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import numpy as np
import pytest
import torch

from predbn.common import (
    DataError,
    PredbnError,
    atomic_write,
    lock_folder,
    write_array,
    write_array_in_parts,
    write_bytes,
    write_text,
)

FORK = multiprocessing.get_context("fork")


@contextmanager
def running(work: Callable[..., None], *arguments: object) -> Iterator[BaseProcess]:
    """Run a function in another process, which is ready when the function sets the event it gets first."""
    ready = FORK.Event()
    process = FORK.Process(target=work, args=(ready, *arguments))
    process.start()
    assert ready.wait(60)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def test_the_kinds_of_files(tmp_path):
    write_bytes(tmp_path / "b", b"\x00\r\n")
    write_text(tmp_path / "t", "µ\n")
    write_array(tmp_path / "a.npy", np.arange(3))
    parts = iter([np.ones((2, 3), np.int32), np.zeros((0, 3), np.int32), np.zeros((1, 3), np.int32)])
    assert write_array_in_parts(tmp_path / "p.npy", parts, dtype="<i4", row_shape=(3,)) == 3
    assert np.load(tmp_path / "p.npy", mmap_mode="r").tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    assert (tmp_path / "b").read_bytes() == b"\x00\r\n"
    assert (tmp_path / "t").read_bytes() == "µ\n".encode()
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "b", "p.npy", "t"]


def test_the_file_gets_its_name_at_the_end_of_the_block(tmp_path):
    path = tmp_path / "x"
    write_text(path, "old")
    with atomic_write(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "x"
    write_text(path, "old")
    with pytest.raises(error), atomic_write(path) as partial:
        partial.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def hold_lock(ready, folder, release, released):
    with lock_folder(folder):
        ready.set()
        release.wait()
        released.set()


def test_a_second_process_is_refused_or_waits(tmp_path):
    release, released = FORK.Event(), FORK.Event()
    with running(hold_lock, tmp_path, release, released):
        with pytest.raises(DataError, match=r"another process is writing to .*: wait for it"):  # noqa: SIM117
            with lock_folder(tmp_path, error=DataError):
                pass
        with pytest.raises(PredbnError), lock_folder(tmp_path):
            pass
        release.set()
        with lock_folder(tmp_path, wait=True):
            assert released.is_set()


def test_a_killed_process_loses_its_lock(tmp_path):
    with running(hold_lock, tmp_path, FORK.Event(), FORK.Event()) as process:
        process.kill()
        process.join()
        with lock_folder(tmp_path):
            pass


def test_the_runs_of_a_folder_are_locked_one_by_one(tmp_path):
    with lock_folder(tmp_path, run="0"):
        with lock_folder(tmp_path, run="1"):
            pass
        with pytest.raises(PredbnError, match=r"another process is writing to .*0: wait for it"):  # noqa: SIM117
            with lock_folder(tmp_path, run="0"):
                pass


def test_a_folder_that_cannot_be_locked_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file cannot be written to \(.+\): choose another"):  # noqa: SIM117
        with lock_folder(tmp_path / "file", error=DataError):
            pass


class FullFile:
    """An open file on a full disk."""

    def write(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        pass


@pytest.mark.parametrize("save", [torch.save, lambda content, file: file.write(b"x")], ids=["torch", "plain"])
def test_an_error_of_the_disk_names_the_file(tmp_path, save):
    path = tmp_path / "3.checkpoint"
    with pytest.raises(OSError, match="No space left on device") as raised, atomic_write(path) as partial:
        partial.touch()
        save({"weight": torch.ones(4)}, FullFile())
    assert raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
