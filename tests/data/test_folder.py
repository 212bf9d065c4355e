from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from predbn.data import DataError, from_folder


@pytest.fixture
def folder(tmp_path, cache):
    root = tmp_path / "pets"
    for name, count in (("dog", 2), ("cat", 3)):
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.random.default_rng(i).integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    (root / "cat" / "notes.txt").write_text("not a picture")
    return root


def test_pictures_come_sorted_by_class_and_name(folder):
    seen = []
    images = from_folder(folder, report=lambda done, total: seen.append((done, total)))
    assert (images.name, images.classes, images.labels.tolist()) == ("pets", ("cat", "dog"), [0, 0, 0, 1, 1])
    assert seen == [(5, 5)]
    (batch,) = images.batches(9)
    names = ["cat/0", "cat/1", "cat/2", "dog/0", "dog/1"]
    for image, name in zip(batch.images, names, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(Image.open(folder / f"{name}.png")))
    assert images.images.is_contiguous()


def test_a_size_makes_them_equal(folder):
    Image.new("L", (100, 50), 77).save(folder / "dog" / "grey.jpg")
    images = from_folder(folder, 16)
    assert images.images.shape == (6, 3, 16, 16)
    assert (images.images[5] == 77).all()
    picture = Image.open(folder / "cat" / "0.png").resize((19, 16), Image.Resampling.BILINEAR).crop((2, 0, 18, 16))
    assert np.array_equal(images.images[0].permute(1, 2, 0).numpy(), np.asarray(picture))
    picture = Image.open(folder / "cat" / "0.png").resize((21, 18), Image.Resampling.BICUBIC).crop((4, 3, 16, 15))
    framed = from_folder(folder, 12, resize=18, interpolation="bicubic")
    assert np.array_equal(framed.images[0].permute(1, 2, 0).numpy(), np.asarray(picture))


def test_mixed_sizes_are_named_and_counted(folder):
    for i in (5, 6):
        Image.new("RGB", (8, 9)).save(folder / "dog" / f"{i}.png")
    with pytest.raises(DataError, match=r"5.png is 9×8 pixels where 5 of the 7 .* are 20×24, and 2 are not: give"):
        from_folder(folder)


@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize("kept", [30, -60])
def test_unreadable_ones_are_named_and_counted(folder, size, kept):
    for name in ("cat/1.png", "dog/0.png"):
        (folder / name).write_bytes((folder / name).read_bytes()[:kept])
    with pytest.raises(DataError, match=r"cat/1.png cannot be read as a picture \(and 1 more of 5\)"):
        from_folder(folder, size)


def test_a_folder_without_pictures_is_said_to_be(tmp_path, folder):
    with pytest.raises(DataError, match="is not a directory"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no pictures in class folders"):
        from_folder(folder / "cat")
    with pytest.raises(DataError, match="size is 0"):
        from_folder(folder, 0)


def test_a_cache_folder_without_room_is_named(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match="set PREDBN_CACHE to a folder that has"):
        from_folder(folder)
