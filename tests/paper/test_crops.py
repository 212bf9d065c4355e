"""Crops of test images are those of training, against slicing one picture at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from predbn.data import sample
from predbn.paper.crops import BLACK, CONTINUED, CROPPED, cropped
from predbn.training import CROP_PADDING as PADDING
from predbn.training import draw_crops as draw


@pytest.mark.parametrize(("border", "mode"), [(BLACK, "constant"), (CONTINUED, "edge")])
def test_a_picture_is_moved_mirrored_and_bordered(border, mode):
    images = sample("test").take(20)
    found = cropped(images, border)
    drawn = draw(20, 20, seed=0, epoch=0)
    for number, picture in enumerate(images.images.numpy()):
        top, left = drawn.corner[0][number].tolist()
        padded = np.pad(picture, ((0, 0), (PADDING, PADDING), (PADDING, PADDING)), mode=mode)
        expected = padded[:, top : top + 32, left : left + 32]
        if drawn.mirrored[0][number]:
            expected = expected[..., ::-1]
        np.testing.assert_array_equal(found.images[number].numpy(), expected)


@pytest.mark.parametrize("border", CROPPED)
def test_labels_and_numbers_stay(border):
    images = sample("test").take(20)
    found = cropped(images, border)
    assert torch.equal(found.labels, images.labels)
    assert torch.equal(found.index, images.index)
    assert found.name == f"{images.name}-{border}"
