"""Corrupted data sets under damage: torn files, flipped bits, folders that cannot be written."""

import errno
import io
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from predbn.common import CHECKSUM_FIELD
from predbn.data import Cifar10C, DataError, read_picture, write_cifar10c, write_imagenetc
from predbn.data.picture_content import add_checksum_field

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


def test_the_checksum_of_a_picture_does_not_change_its_pixels(large: Images) -> None:
    jpeg = cv2.imencode(".jpg", large[0][..., ::-1])[1].tobytes()
    with_field = add_checksum_field(jpeg)
    assert cv2.imdecode(np.frombuffer(with_field, np.uint8), 1).tobytes() == (
        cv2.imdecode(np.frombuffer(jpeg, np.uint8), 1).tobytes()
    )
    with Image.open(io.BytesIO(with_field)) as picture:
        assert picture.info["comment"] == CHECKSUM_FIELD.encode()
        assert picture.info["jfif"] == 257


def test_a_folder_that_may_not_be_written_is_an_error(
    tmp_path: Path, cifar: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", closed)
    with pytest.raises(DataError, match=r"c cannot be written \(Permission denied\): choose another directory"):
        write_cifar10c(cifar[:4], np.zeros(4, np.int64), tmp_path / "c", TWO, seed=0)
