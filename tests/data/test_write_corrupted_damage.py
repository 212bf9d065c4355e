"""Corrupted data sets under damage: flipped bits, a full disk, killed processes, two writers at once."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from predbn.common import CHECKSUM_FIELD
from predbn.data import (
    Cifar10C,
    DataError,
    criteo,
    prepare_synthetic,
    read_picture,
    write_cifar10c,
    write_imagenetc,
)
from predbn.data import write_corrupted as writing
from predbn.data.criteo import synthetic_rows
from predbn.data.output import open_output
from predbn.data.picture_content import add_checksum_field
from predbn.shifts import corrupt

from ..chaos.flips import flip_bits
from .test_write_corrupted import TWO, folder

Images = npt.NDArray[np.uint8]


def test_a_second_run_replaces_a_damaged_array(tmp_path: Path, cifar: Images) -> None:
    labels, out = np.zeros(4, np.int64), tmp_path / "c"
    write_cifar10c(cifar[:4], labels, out, TWO, seed=0)
    before = {name: (out / f"{name}.npy").read_bytes() for name in TWO}
    damaged = bytearray(before["fog"])
    damaged[-3000:-200] = bytes(2800)
    (out / "fog.npy").write_bytes(damaged)
    with pytest.raises(DataError, match=r"fog.npy is damaged .*run the command that wrote it again"):
        Cifar10C(out).split("fog", 1)
    kept = (out / "shot_noise.npy").stat().st_mtime_ns
    write_cifar10c(cifar[:4], labels, out, TWO, seed=0)
    assert {name: (out / f"{name}.npy").read_bytes() for name in TWO} == before
    assert (out / "shot_noise.npy").stat().st_mtime_ns == kept


def test_a_second_run_replaces_a_damaged_picture(tmp_path: Path, large: Images) -> None:
    source, out = folder(tmp_path, large), tmp_path / "c"
    write_imagenetc(source, out, ["contrast"], seed=0)
    pictures = sorted(out.rglob("*.JPEG"))
    before = [path.read_bytes() for path in pictures]
    pictures[0].write_bytes(before[0][:-300])
    pictures[1].write_bytes(before[1][:5000] + b"?" + before[1][5001:])
    pictures[2].write_bytes(b"")
    with pytest.raises(DataError, match=r"JPEG cannot .*: it is damaged; run the predbn corrupt that wrote it again"):
        read_picture(pictures[1])
    write_imagenetc(source, out, ["contrast"], seed=0)
    assert [path.read_bytes() for path in pictures] == before


def test_what_was_written_without_a_checksum_is_kept(tmp_path: Path, cifar: Images) -> None:
    labels, out = np.zeros(4, np.int64), tmp_path / "c"
    write_cifar10c(cifar[:4], labels, out, ["fog"], seed=0)
    np.save(out / "fog.npy", np.load(out / "fog.npy"))
    card = json.loads((out / "corrupt.json").read_text())
    del card["checksum"]
    (out / "corrupt.json").write_text(json.dumps(card))
    before = (out / "fog.npy").stat().st_mtime_ns
    write_cifar10c(cifar[:4], labels, out, ["fog"], seed=0)
    assert (out / "fog.npy").stat().st_mtime_ns == before


def read_fog(path: Path) -> bytes:
    return Cifar10C(path.parent).split("fog", 3).tobytes()


def read_labels(path: Path) -> list[int]:
    return Cifar10C(path.parent).labels.tolist()


def test_flipped_bits_are_noticed(tmp_path: Path, cifar: Images, large: Images) -> None:
    write_cifar10c(cifar[:2], np.zeros(2, np.int64), tmp_path / "c", ["fog"], seed=0)
    flips = [flip_bits(tmp_path / "c" / "fog.npy", read_fog, count=200)]
    header = range(8 * 128)
    flips.append(flip_bits(tmp_path / "c" / "fog.npy", read_fog, bits=header))
    flips.append(
        flip_bits(tmp_path / "c" / "labels.npy", lambda path: Cifar10C(path.parent).labels.tolist(), count=200)
    )
    write_imagenetc(folder(tmp_path, large), tmp_path / "p", ["fog"], seed=0)
    picture = next((tmp_path / "p").rglob("*.JPEG"))
    for bits in (None, range(0, 8 * 120, 3)):
        flips.append(flip_bits(picture, lambda path: read_picture(path).tobytes(), count=200, bits=bits))
    assert [flip.changed for flip in flips] == [[]] * 5


def test_the_checksum_of_a_picture_does_not_change_its_pixels(large: Images) -> None:
    jpeg = cv2.imencode(".jpg", large[0][..., ::-1])[1].tobytes()
    with_field = add_checksum_field(jpeg)
    assert cv2.imdecode(np.frombuffer(with_field, np.uint8), 1).tobytes() == (
        cv2.imdecode(np.frombuffer(jpeg, np.uint8), 1).tobytes()
    )
    with Image.open(io.BytesIO(with_field)) as picture:
        assert picture.info["comment"] == CHECKSUM_FIELD.encode()
        assert picture.info["jfif"] == 257


def test_a_full_disk_is_noticed_before_the_work(tmp_path: Path, cifar: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    monkeypatch.setattr(writing, "_write_severity", None)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\): make room .* continues"):
        write_cifar10c(cifar[:4], np.zeros(4, np.int64), tmp_path / "c", TWO, seed=0)
    assert not list((tmp_path / "c").glob("*.part"))


def test_a_folder_that_may_not_be_written_is_an_error(
    tmp_path: Path, cifar: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", closed)
    with pytest.raises(DataError, match=r"c cannot be written \(Permission denied\): choose another directory"):
        write_cifar10c(cifar[:4], np.zeros(4, np.int64), tmp_path / "c", TWO, seed=0)


SMALL_DISK = """
mount -t tmpfs -o size=2m tmpfs "$1" && cd "$1" && exec "$2" -c '
import numpy as np
from pathlib import Path
from predbn.data import DataError, write_cifar10c
try:
    write_cifar10c(np.zeros((300, 32, 32, 3), np.uint8), np.zeros(300, int), Path("c"), ["fog"], seed=0, processes=2)
except DataError as error:
    print(error)
'
"""


def test_a_full_disk_does_not_end_the_process(tmp_path: Path) -> None:
    shell = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*shell, "mount -t tmpfs tmpfs /mnt"], check=False).returncode:
        pytest.skip("this system does not let users mount a small disk")
    command = [*shell, SMALL_DISK, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert "cannot be written (No space left on device): make room" in done.stdout, done.stderr
    assert done.returncode == 0


def write_all(number: int, root: Path, barrier: Any, results: Any) -> None:
    """Write the three kinds of folders, each at the same time as the other process."""
    images = np.random.default_rng(0).integers(1, 256, (40, 32, 32, 3), dtype=np.uint8)
    writers: dict[str, Callable[[], object]] = {
        "npy": lambda: write_cifar10c(images, np.zeros(40, np.int64), root / "npy", ["glass_blur"], seed=0),
        "folder": lambda: write_imagenetc(root / "clean", root / "folder", ["contrast"], seed=0),
        "rows": lambda: prepare_synthetic(70_000, root / "rows", threads=1),
    }
    for name, call in writers.items():
        barrier.wait()
        try:
            call()
        except DataError as error:
            results.put((name, str(error)))
        else:
            results.put((name, "done"))


def test_two_processes_never_mix_what_they_write(tmp_path: Path, large: Images) -> None:
    folder(tmp_path, large)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=write_all, args=(k, tmp_path, barrier, results)) for k in range(2)]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=100) for _ in range(6)]
    for process in processes:
        process.join()
    for name in ("npy", "folder", "rows"):
        messages = [message for kind, message in outcomes if kind == name]
        assert "done" in messages
        others = [message for message in messages if message != "done"]
        assert all("another process is writing to" in message for message in others), messages
        assert not list((tmp_path / name).rglob("*.part"))
    images = np.random.default_rng(0).integers(1, 256, (40, 32, 32, 3), dtype=np.uint8)
    written = np.load(tmp_path / "npy" / "glass_blur.npy").reshape(5, 40, 32, 32, 3)
    for severity in range(1, 6):
        expected = corrupt(images, "glass_blur", severity, seed=0, index=range(40))
        assert np.array_equal(written[severity - 1], expected)
    assert len([read_picture(path) for path in (tmp_path / "folder").rglob("*.JPEG")]) == 15
    rows = criteo("all", tmp_path / "rows")
    assert np.array_equal(rows.labels.numpy(), synthetic_rows(70_000, seed=0).labels)


def test_workers_end_with_a_killed_parent(tmp_path: Path, cifar: Images) -> None:
    np.save(tmp_path / "images.npy", cifar[:50])
    np.save(tmp_path / "labels.npy", np.zeros(50, np.int64))
    code = f"""
import os, signal
from pathlib import Path
from predbn.data import write_cifar10c
if __name__ == "__main__":
    root = Path({str(tmp_path)!r})
    kill = lambda done, total: done and os.kill(os.getpid(), signal.SIGKILL)
    options = dict(seed=0, processes=2, progress=kill)
    write_cifar10c(root / "images.npy", root / "labels.npy", root / "c", ["fog", "snow"], **options)
"""
    (tmp_path / "script.py").write_text(code)
    # The workers have the same standard output: reading it to its end waits for them.
    killed = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], check=False, capture_output=True, timeout=100
    )
    assert killed.returncode == -signal.SIGKILL
    write_cifar10c(tmp_path / "images.npy", tmp_path / "labels.npy", tmp_path / "c", ["fog"], seed=0)


def test_a_card_that_is_written_while_a_folder_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Path.iterdir

    def list_later(path: Path) -> Iterator[Path]:  # another process has begun in the meantime
        (path / "card.json").write_text("{}")
        (path / "fog.npy").write_bytes(b"")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", list_later)
    with open_output(tmp_path, "card.json", {}):
        assert (tmp_path / "fog.npy").exists()
