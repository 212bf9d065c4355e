"""Data by name: arrays, folders, samples, corrupted or not."""

from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image

from predbn.commands.inputs import ImageSubset, open_images
from predbn.data import sample
from predbn.models.preprocessing import SIGNED, Preprocessing
from predbn.shifts import corrupt


def opened(reference: str, role: str = "data", max_images: int = 10_000, **options) -> ImageSubset:
    preprocessing = options.pop("preprocessing", SIGNED)
    return open_images(reference, role, preprocessing, max_images, option="--data", **options)


def all_of(data, size: int = 7) -> torch.Tensor:
    return torch.cat([batch.images for batch in data.batches(size)])


def test_the_reference_and_the_data_of_the_sample_are_its_two_parts():
    assert len(opened("sample", "reference")) == 1000
    assert len(opened("sample")) == 2000


def test_the_random_choice_depends_on_the_seed_alone():
    first, second = (opened("sample", max_images=20, seed=3) for _ in range(2))
    assert all_of(first).equal(all_of(second, size=20))
    positions = torch.randperm(2000, generator=torch.Generator().manual_seed(3))[:20]
    assert all_of(first).equal(sample("test").images[positions])
    order = [4, 0]
    assert next(first.batches(2, order=order)).images.equal(all_of(first)[order])


def test_a_corruption_follows_the_image():
    data = opened("sample", max_images=6, corruption="gaussian_noise", severity=4, seed=1)
    whole = sample("test")
    expected = corrupt(whole.images, "gaussian_noise", 4, seed=1, index=whole.index)[data.positions]
    assert all_of(data, size=4).equal(expected)


def test_a_folder_flat_or_in_classes_is_framed_for_the_model(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "cats" / "deep").mkdir(parents=True)
    for name in ("a.png", "cats/b.PNG", "cats/deep/c.png"):
        Image.fromarray(random.integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    preprocessing = Preprocessing((32, 32), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), resize=40)
    data = opened(str(tmp_path), preprocessing=preprocessing)
    assert len(data) == 3
    middle = np.asarray(Image.open(tmp_path / "a.png"))[4:36, 14:46].transpose(2, 0, 1)
    assert any(np.array_equal(image.numpy(), middle) for image in all_of(data, size=2))


def test_data_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="There is no data 'nowhere'"):
        opened("nowhere")
    with pytest.raises(typer.BadParameter, match="has no pictures"):
        opened(str(tmp_path))
    with pytest.raises(typer.BadParameter, match="is missing"):
        opened(str(tmp_path / "x.npy"))
    for images, message in ((np.zeros((2, 4, 4, 3)), "float64"), (np.zeros((0, 4, 4, 3), np.uint8), "no images")):
        np.save(tmp_path / "images.npy", images)
        with pytest.raises(typer.BadParameter, match=message):
            opened(str(tmp_path))
