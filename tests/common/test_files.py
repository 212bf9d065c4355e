"""Files appear whole or not at all, and a lock keeps a second process out."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from predbn.common import (
    DataError,
    PredbnError,
    atomic_write,
    finish_partial,
    lock_folder,
    partial_path,
    write_array,
    write_bytes,
    write_text,
)


def start(code: str, *arguments: Path) -> subprocess.Popen[str]:
    """Run Python code in another process and wait until it prints "ready"."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_three_kinds_of_files(tmp_path):
    write_bytes(tmp_path / "b", b"\x00\r\n")
    write_text(tmp_path / "t", "µ\n")
    write_array(tmp_path / "a.npy", np.arange(3))
    assert (tmp_path / "b").read_bytes() == b"\x00\r\n"
    assert (tmp_path / "t").read_bytes() == "µ\n".encode()
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "b", "t"]


def test_the_file_gets_its_name_at_the_end_of_the_block(tmp_path):
    path = tmp_path / "x"
    write_text(path, "old")
    with atomic_write(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_partial_file_can_be_finished_later(tmp_path):
    path = tmp_path / "x"
    partial_path(path).write_text("new")
    finish_partial(path)
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "x"
    write_text(path, "old")
    with pytest.raises(error), atomic_write(path) as partial:
        partial.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_kill_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    write_text(path, "old")
    code = """
import sys, time
from pathlib import Path
from predbn.common import atomic_write
with atomic_write(Path(sys.argv[1])) as partial:
    partial.write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""
    process = start(code, path)
    process.kill()
    process.wait()
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


HOLD = """
import sys, time
from pathlib import Path
from predbn.common import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("ready", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
    Path(sys.argv[3]).touch()
"""


def test_a_second_process_is_refused(tmp_path):
    folder, release = tmp_path / "folder", tmp_path / "release"
    folder.mkdir()
    process = start(HOLD, folder, release, tmp_path / "released")
    try:
        with pytest.raises(DataError, match=r"another process is writing to .*folder: wait for it"):  # noqa: SIM117
            with lock_folder(folder, error=DataError):
                pass
        with pytest.raises(PredbnError), lock_folder(folder):
            pass
    finally:
        release.touch()
        process.wait()
    with lock_folder(folder):
        pass


def test_a_second_process_can_wait(tmp_path):
    folder, release, released = (tmp_path / name for name in ("folder", "release", "released"))
    folder.mkdir()
    process = start(HOLD, folder, release, released)
    release.touch()
    with lock_folder(folder, wait=True):
        assert released.exists()
    process.wait()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_loses_its_lock(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    process = start(HOLD, folder, tmp_path / "release", tmp_path / "released")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    begin = time.monotonic()
    with lock_folder(folder):
        assert time.monotonic() - begin < 10


def test_the_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path):
        raise ZeroDivisionError
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
