import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from predbn.training.cifar10.augmentation import BORDERS, PADDING, crop_images, draw_crops, pad_images


@given(count=st.integers(1, 60), batch=st.integers(1, 20), seed=st.integers(-3, 2**40), epoch=st.integers(0, 200))
def test_every_image_at_most_once(count, batch, seed, epoch):
    order, corner, mirrored = draw_crops(count, batch, seed=seed, epoch=epoch)
    steps = count // batch
    assert order.shape == mirrored.shape == (steps, batch)
    assert corner.shape == (steps, batch, 2)
    seen = order.flatten().tolist()
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(range(count))
    assert ((corner >= 0) & (corner <= 2 * PADDING)).all()


def test_draws_depend_on_seed_and_epoch():
    first = draw_crops(100, 10, seed=1, epoch=2)
    torch.rand(7)
    assert all(map(torch.equal, first, draw_crops(100, 10, seed=1, epoch=2)))
    for other in ({"seed": 2, "epoch": 2}, {"seed": 1, "epoch": 3}):
        assert not torch.equal(first.order, draw_crops(100, 10, **other).order)


def test_corners_and_mirrors_are_uniform():
    _, corner, mirrored = draw_crops(9_000, 9_000, seed=0, epoch=0)
    counts = torch.bincount((corner[..., 0] * 9 + corner[..., 1]).flatten(), minlength=81)
    assert ((counts - 9_000 / 81).square() / (9_000 / 81)).sum() < 150
    assert abs(mirrored.float().mean() - 0.5) < 0.03


@given(count=st.integers(1, 5), height=st.integers(1, 7), width=st.integers(1, 7), seed=st.integers(0, 100))
def test_crops_against_pillow(count, height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, height, width), generator=generator, dtype=torch.uint8)
    order, corner, mirrored = (part[0] for part in draw_crops(count, count, seed=seed, epoch=0))
    result = crop_images(pad_images(images), order, corner, mirrored)
    assert result.shape == images.shape
    for place in range(count):
        picture = Image.fromarray(images[order[place]].permute(1, 2, 0).numpy())
        picture = ImageOps.expand(picture, PADDING, fill=0)
        row, column = corner[place].tolist()
        picture = picture.crop((column, row, column + width, row + height))
        if mirrored[place]:
            picture = ImageOps.mirror(picture)
        np.testing.assert_array_equal(result[place].permute(1, 2, 0).numpy(), np.asarray(picture))


@pytest.mark.parametrize("padding", [0, 2, 4, 31])
@pytest.mark.parametrize("border", BORDERS)
def test_a_border_is_that_of_numpy(border, padding):
    images = torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    expected = np.pad(images.numpy(), sides, mode={"zero": "constant"}.get(border, border)).transpose(0, 2, 3, 1)
    padded = pad_images(images, padding, border)
    assert np.array_equal(padded.numpy(), expected)
    order, corner, mirrored = (part[0] for part in draw_crops(3, 3, seed=0, epoch=0, padding=padding))
    crops = crop_images(padded, order, corner, mirrored, padding=padding)
    assert crops.shape == images.shape
    assert 0 <= corner.min() <= corner.max() <= 2 * padding
