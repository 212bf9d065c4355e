from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from predbn.data.mosaic import decode, encode


@given(st.integers(0, 30), st.sampled_from([4, 32]))
def test_nothing_is_lost(count, side):
    images = np.random.default_rng(count).integers(0, 256, (count, 3, side, side), dtype=np.uint8)
    assert np.array_equal(decode(encode(images), count, side), images)


def test_images_lie_in_rows():
    images = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1) * np.ones((1, 3, 32, 32), np.uint8)
    picture = np.asarray(Image.open(io.BytesIO(encode(images))))
    assert picture.shape == (64, 96, 3)
    assert picture[::32, ::32, 0].tolist() == [[0, 1, 2], [3, 4, 0]]


def test_too_few_images_are_an_error():
    content = encode(np.zeros((4, 3, 32, 32), np.uint8))
    with pytest.raises(ValueError, match="64×64 pixels do not hold 5 images of 32×32"):
        decode(content, 5)
