import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from predbn.training.imagenet.augmentation import AREA, RATIO, draw_crop, read_crop


@given(st.integers(1, 700), st.integers(1, 700), st.integers(0, 99), st.integers(0, 99))
def test_a_crop_lies_within_its_image(width, height, seed, index):
    crop = draw_crop(width, height, seed=seed, epoch=1, index=index)
    assert min(crop.left, crop.top) >= 0
    assert min(crop.width, crop.height) >= 1
    assert crop.left + crop.width <= width
    assert crop.top + crop.height <= height


def test_areas_ratios_and_places_are_spread_over_their_ranges():
    crops = [draw_crop(500, 375, seed=0, epoch=0, index=index) for index in range(2000)]
    areas = np.array([crop.width * crop.height / (500 * 375) for crop in crops])
    ratios = np.array([crop.width / crop.height for crop in crops])
    assert AREA[0] * 0.97 < areas.min() < 0.06
    assert areas.max() > 0.9
    assert RATIO[0] * 0.97 < ratios.min() < 0.77
    assert 1.3 < ratios.max() < RATIO[1] * 1.03
    small = areas < 0.2
    assert abs(np.log(ratios[small]).mean()) < 0.03
    assert 0.45 < np.mean([crop.mirrored for crop in crops]) < 0.55
    middles = np.array([(crop.left + crop.width / 2) / 500 for crop in crops])
    assert abs(middles.mean() - 0.5) < 0.01


@pytest.mark.parametrize("ending", ["png", "jpg"])
@pytest.mark.parametrize("index", range(6))
def test_the_pixels_are_those_of_the_crop(tmp_path, ending, index):
    """On a slope of grey the value says where a pixel was: at column i, that of left + (i + ½) · width / size − ½."""
    width, height, size = 512, 480, 32
    slope = np.broadcast_to((np.arange(width) / 2)[None, :, None], (height, width, 3))
    path = tmp_path / f"slope.{ending}"
    Image.fromarray(slope.astype(np.uint8)).save(path, **({"quality": 95} if ending == "jpg" else {}))
    result = read_crop(path, size, seed=0, epoch=0, index=index)
    assert (result.shape, result.dtype) == ((size, size, 3), np.uint8)
    crop = draw_crop(width, height, seed=0, epoch=0, index=index)
    columns = np.arange(size)[::-1] if crop.mirrored else np.arange(size)
    expected = (crop.left + (columns + 0.5) * crop.width / size - 0.5) / 2
    inner = slice(2, -2)
    assert np.abs(result[inner, inner, 0] - expected[None, inner]).max() < 2.5
