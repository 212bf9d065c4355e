"""The loader reads what `predbn corrupt` writes, and names damaged files."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from predbn.data import DataError, ImageNetC, ShiftedDataset, read_picture, resize_crop, write_imagenetc

NAMES = ["contrast", "gaussian_noise"]


@pytest.fixture
def folder(tmp_path):
    for wnid in ("n01", "n02"):
        for i in range(3):
            path = tmp_path / "clean" / wnid / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (230, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
    write_imagenetc(tmp_path / "clean", tmp_path / "c", NAMES, seed=3)
    return tmp_path / "c"


def test_it_is_read_back(folder):
    data = ImageNetC(folder)
    assert isinstance(data, ShiftedDataset)
    assert (data.names, data.classes, data.name, len(data)) == (NAMES, ("n01", "n02"), "c", 6)
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    batch = next(data.batches("contrast", 5, 4))
    assert (batch.images.shape, batch.images.dtype) == ((4, 3, 224, 224), torch.uint8)
    assert batch.labels.tolist() == [0, 0, 0, 1]
    assert sum(len(batch.labels) for batch in data.batches("gaussian_noise", 1, 4)) == 6


def test_an_order_picks_pictures(folder):
    (batch,) = ImageNetC(folder).batches("contrast", 2, 4, order=[4, 1])
    assert (batch.labels.tolist(), batch.index.tolist()) == ([1, 0], [4, 1])
    for image, name in zip(batch.images, ("n02/1", "n01/1"), strict=True):
        expected = np.asarray(Image.open(folder / "contrast" / "2" / f"{name}.JPEG"))
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)


def test_clean_pictures_are_cropped_as_the_benchmark_does(folder):
    with pytest.raises(DataError, match="has no clean pictures"):
        ImageNetC(folder).batches("clean", 0, 4)
    clean = folder.parent / "clean"
    batch = next(ImageNetC(folder, clean=clean).batches("clean", 0, 2))
    assert np.array_equal(
        batch.images[1].permute(1, 2, 0).numpy(), read_picture(clean / "n01" / "1.png", resize_crop(224, 256))
    )


def test_damage_is_named(folder, tmp_path):
    with pytest.raises(DataError, match="is not a directory"):
        ImageNetC(tmp_path / "nowhere")
    with pytest.raises(DataError, match="give the folder that contains the corruptions"):
        ImageNetC(folder / "contrast" / "1")
    data = ImageNetC(folder)
    with pytest.raises(DataError, match="fog/1 is missing"):
        data.split("fog", 1)
    victim = folder / "contrast" / "2" / "n01" / "1.JPEG"
    victim.write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"1.JPEG cannot be read as a picture"):
        list(data.batches("contrast", 2, 4))
    Image.new("RGB", (224, 200)).save(victim)
    with pytest.raises(DataError, match=r"1.JPEG is 200×224 pixels, but .*0.JPEG is 224×224"):
        list(data.batches("contrast", 2, 4))
    victim.unlink()
    with pytest.raises(DataError, match=r"2 \(5 pictures\) and .* \(6\) do not have the same pictures: n01/1 is"):
        data.split("contrast", 2)
    (folder / "contrast" / "3" / "n09").mkdir()
    with pytest.raises(DataError, match="3 has the class n09, unlike"):
        data.split("contrast", 3)


def test_a_split_without_a_class_is_named_before_any_is_read(folder):
    shutil.rmtree(folder / "gaussian_noise" / "4" / "n02")
    with pytest.raises(
        DataError, match=r"gaussian_noise/4 does not have the class n02, unlike .*contrast/1 \(1 classes"
    ):
        ImageNetC(folder)
    shutil.rmtree(folder / "gaussian_noise" / "4")
    with pytest.raises(DataError, match="gaussian_noise/4 is missing"):
        ImageNetC(folder)


def test_pictures_are_resized_for_a_model_of_another_size(folder):
    data = ImageNetC(folder, clean=folder.parent / "clean", transform=resize_crop(32, 40, "bicubic"))
    batch = next(data.batches("contrast", 1, 2))
    picture = Image.open(folder / "contrast" / "1" / "n01" / "1.JPEG").resize((40, 40), Image.Resampling.BICUBIC)
    assert np.array_equal(batch.images[1].permute(1, 2, 0).numpy(), np.asarray(picture.crop((4, 4, 36, 36))))
    assert next(data.batches("clean", 0, 2)).images.shape == (2, 3, 32, 32)
