"""What is in picture files: depth, limits, and what is said about a file that cannot be used."""

import errno
import os
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from predbn.data import DataError, open_unlabelled, read_picture, reading, resize_crop, write_imagenetc
from predbn.training.imagenet.augmentation import read_crop

from .folders import pixels_of

DEEP = np.random.default_rng(0).integers(0, 65536, (20, 24), dtype=np.uint16)


def png(width: int, height: int) -> bytes:
    """A picture of one bit per pixel, all black: a few kilobytes for any number of pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(height * (1 + -(-width // 8))))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("name", ["grey.png", "grey.tiff", "colour.png", "colour.tiff", "grey.ppm"])
def test_sixteen_bits_are_read_as_opencv_reads_them(tmp_path, name):
    path = tmp_path / name
    pixels = np.stack([DEEP, DEEP // 2, 65535 - DEEP], 2) if name.startswith("colour") else DEEP
    cv2.imwrite(str(path.with_suffix(".pgm") if name == "grey.ppm" else path), pixels)
    if name == "grey.ppm":
        path.with_suffix(".pgm").rename(path)
    found = read_picture(path).astype(int)
    assert np.abs(found - cv2.imread(str(path))[..., ::-1]).max() <= 1  # OpenCV rounds colours of TIFF files
    assert np.array_equal(found, np.broadcast_to(np.atleast_3d(pixels)[..., ::-1] >> 8, found.shape))


@pytest.mark.parametrize("pixels", [(DEEP / 65535).astype(np.float32), DEEP.astype(np.int32) << 15])
def test_numbers_without_a_known_range_are_refused(tmp_path, pixels):
    (tmp_path / "clean" / "a").mkdir(parents=True)
    path = tmp_path / "clean" / "a" / "x.tiff"
    Image.fromarray(pixels).save(path)
    message = r"x.tiff cannot be read as a(n image \(|\s?picture: )it has grey values .*convert it to 8 bits"
    with pytest.raises(DataError, match=message):
        read_picture(path)
    with pytest.raises(DataError, match=message):
        read_crop(path, 8, seed=0, epoch=0, index=0)
    with pytest.raises(DataError, match=message):
        write_imagenetc(tmp_path / "clean", tmp_path / "out", ["contrast"], seed=0)


def test_a_picture_that_unpacks_to_too_much_is_refused(tmp_path):
    (tmp_path / "clean" / "a").mkdir(parents=True)
    (tmp_path / "clean" / "a" / "x.png").write_bytes(png(20_000, 20_000))
    with pytest.raises(DataError, match=r"x.png .*: it unpacks to more pixels than Pillow allows"):
        write_imagenetc(tmp_path / "clean", tmp_path / "out", ["contrast"], seed=0)


def test_a_picture_up_to_the_limit_is_read(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    path.write_bytes(png(400, 300))
    monkeypatch.setattr(reading, "MAX_BYTES", 359_999)
    with pytest.raises(DataError, match=r"360,000 bytes of memory and the limit is 359,999; make it smaller"):
        read_picture(path)
    monkeypatch.setattr(reading, "MAX_BYTES", 360_000)
    assert read_picture(path).shape == (300, 400, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    with pytest.raises(DataError, match="it unpacks to more pixels than Pillow allows"):
        read_picture(path)


def test_a_large_file_is_not_read(tmp_path):
    with (tmp_path / "x.webp").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(DataError, match=r"x.webp .*takes 3,221,225,472 bytes "):
        read_picture(tmp_path / "x.webp")


def test_a_long_picture_does_not_become_a_huge_one(tmp_path):
    Image.new("L", (1, 60_000)).save(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x.png .*it takes 11,796,480,000 bytes of memory"):
        read_picture(tmp_path / "x.png", resize_crop(224, 256))


def test_a_picture_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    Image.new("L", (4, 4)).save(tmp_path / "x.png")

    def closed(path, *arguments):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("builtins.open", closed)
    with pytest.raises(DataError, match=r"x.png cannot be .*: Permission denied; change its permissions") as raised:
        read_picture(tmp_path / "x.png")
    assert "replace" not in str(raised.value)


def test_reading_a_pipe_does_not_wait_forever(tmp_path):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x.png is a pipe or a device, but must be a file"):
        read_picture(tmp_path / "x.png")
    with pytest.raises(DataError, match="is a folder"):
        read_picture(tmp_path)


def test_formats_that_run_programs_are_not_tried(tmp_path):
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(DataError, match=r"x.png cannot be read as a picture: it is none of BMP, GIF"):
        read_picture(tmp_path / "x.png")


def test_any_folder_of_pictures_is_read_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    Image.fromarray(pixels_of(0)).save(tmp_path / "a" / "b" / "x.png")
    assert len(open_unlabelled(str(tmp_path), "test")) == 1
    Image.new("L", (4, 4)).save(tmp_path / "a" / "y.gif")
    with pytest.raises(DataError, match=r"y.gif has an unsupported picture format: convert it"):
        open_unlabelled(str(tmp_path), "test")
    (tmp_path / "a" / "y.gif").unlink()
    real = os.scandir

    def scandir(path):
        if str(path).endswith("b"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match=r"a/b cannot be read \(Permission denied\): change its permissions"):
        open_unlabelled(str(tmp_path), "test")
