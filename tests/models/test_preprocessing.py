import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.models import ModelError, Preprocessing
from predbn.models.preprocessing import CAFFE, SIGNED, Normalise

from .networks import pictures

colours = st.tuples(*[st.floats(-300, 300)] * 3)
spreads = st.tuples(*[st.floats(0.7, 300)] * 3)


@given(mean=colours, std=spreads, channels=st.sampled_from(["rgb", "bgr"]), size=st.integers(1, 5))
def test_normalise_against_numpy(mean, std, channels, size):
    images = pictures(2, size)
    values = images.numpy().astype(np.float64)
    if channels == "bgr":
        values = values[:, [2, 1, 0]]
    shape = (1, 3, 1, 1)
    expected = (values - np.reshape(mean, shape)) / np.reshape(std, shape)
    result = Normalise(Preprocessing((size, size), mean, std, channels))(images)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6 * 600 / min(std))


def test_caffes_order_is_blue_green_red():
    red = torch.zeros(1, 3, 224, 224, dtype=torch.uint8)
    red[:, 0] = 200
    result = Normalise(CAFFE)(red)[0, :, 0, 0]
    np.testing.assert_allclose(result.numpy(), [-103.939, -116.779, 200 - 123.68], rtol=1e-6)


@pytest.mark.parametrize(
    ("images", "what"),
    [
        (torch.zeros(2, 3, 32, 32), r"float32 \[2, 3, 32, 32\], but the model takes uint8"),
        (pictures()[0], r"uint8 \[3, 32, 32\]"),
        (pictures()[:, :1], r"uint8 \[2, 1, 32, 32\]"),
        (pictures(2, 28), "28×28, but the model takes 32×32: resize"),
        (pictures()[:, :, :16], "16×32, but"),
    ],
)
def test_wrong_images(images, what):
    with pytest.raises(ModelError, match=what):
        Normalise(SIGNED)(images)


def test_floats_are_taken_on_request_so_that_gradients_reach_the_pixels():
    normalise, images = Normalise(SIGNED), pictures()
    expected = normalise(images)
    normalise.takes_floats = True
    pixels = images.float().requires_grad_(True)
    assert torch.equal(normalise(pixels), expected)
    assert torch.equal(normalise(images), expected)
    (gradient,) = torch.autograd.grad(normalise(pixels).sum(), pixels)
    assert torch.allclose(gradient, torch.full_like(gradient, 1 / 127.5))
    with pytest.raises(ModelError, match="int64"):
        normalise(images.long())


@pytest.mark.parametrize(
    "wrong",
    [{"std": (1.0, 0.0, 1.0)}, {"std": (1.0, 1.0, float("inf"))}, {"mean": (float("nan"), 0, 0)}, {"size": (0, 32)}],
)
def test_an_invalid_preprocessing(wrong):
    right = {"size": (32, 32), "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    with pytest.raises(ModelError, match="must be"):
        Preprocessing(**{**right, **wrong})


def test_mean_and_std_for_pixels_from_0_to_1_are_refused():
    with pytest.raises(ModelError, match="for pixels from 0 to 1: multiply both by 255"):
        Preprocessing((224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_it_is_plain_data_for_cards_and_no_part_of_the_weights():
    assert json.loads(json.dumps(CAFFE.describe()))["channels"] == "bgr"
    assert not Normalise(CAFFE).state_dict()
