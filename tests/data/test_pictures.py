"""Reading and listing picture files; resizing is compared with torchvision's transforms, which timm uses too."""

import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from predbn.data import DataError, class_folders, list_pictures, read_picture, resize_crop
from predbn.data.pictures import ResizeCrop, read_pictures

from .folders import make_folder, pixels_of

transforms = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")

SIDE = st.integers(1, 60)


@given(
    SIDE, SIDE, st.integers(1, 40), st.integers(0, 20), st.sampled_from(["bilinear", "bicubic", "lanczos", "nearest"])
)
def test_resizing_is_that_of_torchvision(height, width, size, more, interpolation):
    picture = Image.fromarray(pixels_of(0, height, width))
    resized = ResizeCrop((size, size), size + more, interpolation)(picture)
    expected = picture
    if picture.size != (size, size):
        mode = transforms.InterpolationMode(interpolation)
        expected = transforms.CenterCrop(size)(transforms.Resize(size + more, mode)(picture))
    assert np.array_equal(np.asarray(resized), np.asarray(expected))


@given(SIDE, SIDE, st.integers(1, 40), st.integers(1, 40))
def test_any_size_is_covered(height, width, rows, columns):
    picture = Image.new("RGB", (width, height), (255, 255, 255))
    resized = np.asarray(resize_crop((rows, columns))(picture))
    assert resized.shape == (rows, columns, 3)
    assert (resized == 255).all()


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGBA", "1"])
def test_every_kind_of_picture_becomes_rgb(tmp_path, mode):
    path = tmp_path / f"picture.{'tiff' if mode == 'CMYK' else 'png'}"
    picture = Image.fromarray(pixels_of(1)).convert(mode)
    picture.save(path)
    assert np.array_equal(read_picture(path), np.asarray(picture.convert("RGB")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "size is 0"),
        ((224, 200), "resize is 200, but 224 pixels"),
        ((224, 256, "cubic"), "interpolation is 'cubic', but must be one of bilinear"),
    ],
)
def test_impossible_sizes_are_errors(arguments, message):
    with pytest.raises(DataError, match=message):
        resize_crop(*arguments)


def test_pictures_of_a_batch_must_have_one_size(tmp_path):
    root = make_folder(tmp_path / "set", ["a"], each=2, height=5, width=6)
    Image.new("RGB", (7, 5)).save(root / "a" / "other.png")
    paths = [str(root / "a" / name) for name in ("00000.png", "00001.png", "other.png")]
    assert np.array_equal(read_pictures(paths[:2]), np.stack([pixels_of(0, 5, 6), pixels_of(1, 5, 6)]))
    with pytest.raises(DataError, match=r"other.png is 5×7 pixels, but .*00000.png is 5×6"):
        read_pictures(paths)


def test_pictures_are_listed_by_class_and_name(tmp_path):
    root = make_folder(tmp_path / "set", ["b", "a"], each=2)
    (root / "a" / "notes.txt").write_text("no picture")
    (root / "a" / "._00002.png").write_text("what macOS adds beside a picture")
    (root / ".hidden").mkdir()
    (root / "c").mkdir()
    listing = list_pictures(root)
    assert (listing.classes, class_folders(root)) == (("a", "b", "c"), ["a", "b", "c"])
    assert listing.names == ["a/00002.png", "a/00003.png", "b/00000.png", "b/00001.png"]
    assert listing.labels.tolist() == [0, 0, 1, 1]
    assert os.path.samefile(listing.path(2), root / "b" / "00000.png")
    assert list_pictures(root, ["b", "a"]).labels.tolist() == [0, 0, 1, 1]
    assert list_pictures(root, ["b", "a"]).names[0] == "b/00000.png"


def test_the_fingerprint_sees_every_change(tmp_path):
    root = make_folder(tmp_path / "set", ["a", "b"])
    fingerprints = [list_pictures(root).fingerprint()]
    assert list_pictures(root).fingerprint() == fingerprints[0]
    os.utime(root / "a" / "00000.png", (1, 1))
    fingerprints.append(list_pictures(root).fingerprint())
    (root / "a" / "00000.png").rename(root / "b" / "00000.png")
    fingerprints.append(list_pictures(root).fingerprint())
    (root / "b" / "00000.png").unlink()
    fingerprints.append(list_pictures(root).fingerprint())
    assert len(set(fingerprints)) == 4
    moved = root.rename(tmp_path / "moved")
    assert list_pictures(moved).fingerprint() == fingerprints[-1]


def test_nothing_is_left_out_in_silence(tmp_path, monkeypatch):
    root = make_folder(tmp_path / "set", ["a", "b"])
    (root / "a" / "lost.png").symlink_to("nowhere.png")
    with pytest.raises(DataError, match=r"a/lost.png is a link to nowhere.png, which does not exist: fix"):
        list_pictures(root)
    (root / "a" / "lost.png").unlink()
    (root / "c").symlink_to("elsewhere")
    with pytest.raises(DataError, match=r"c is a link to elsewhere, which does not exist"):
        list_pictures(root)
    (root / "c").unlink()
    (root / "b" / "moving.GIF").write_bytes(b"GIF89a")
    with pytest.raises(DataError, match=r"b/moving.GIF has an unsupported picture format: convert it to one of"):
        list_pictures(root)
    (root / "b" / "moving.GIF").unlink()
    (root / "b" / "more").mkdir()
    for stray in (root / "beside.png", root / "b" / "more" / "below.png"):
        shutil.copy(root / "a" / "00000.png", stray)
        with pytest.raises(DataError, match=rf"{stray.name} is not directly in a class folder: move it into one"):
            list_pictures(root)
        stray.unlink()
    assert len(list_pictures(root)) == 2
    real = os.scandir

    def scandir(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match=r"set/b cannot be read \(Permission denied\): change its permissions"):
        list_pictures(root)
