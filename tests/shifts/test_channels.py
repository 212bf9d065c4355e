"""Corruptions of images that do not have three channels."""

import numpy as np
import pytest
import torch

from predbn.shifts import corrupt, names, names_for

GREY = torch.randint(0, 256, (3, 1, 32, 40), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
MIXING = ("snow", "frost", "brightness", "jpeg_compression", "spatter")


def test_which_corruptions_are_defined():
    assert set(names("all")) - set(names_for(1, 32, 32)) == {"saturate"}
    assert set(names("all")) - set(names_for(5, 32, 32)) == {"saturate", *MIXING}
    assert names_for(3, 32, 32) == names("all")
    assert "glass_blur" not in names_for(3, 8, 8)


@pytest.mark.parametrize("name", names_for(1, 32, 40))
def test_a_grey_image_is_corrupted_like_rgb_with_equal_channels(name):
    corrupted = corrupt(GREY, name, 3, seed=4)
    assert corrupted.shape == GREY.shape
    assert not torch.equal(corrupted, GREY)
    as_array = corrupt(GREY.permute(0, 2, 3, 1).numpy(), name, 3, seed=4)
    assert np.array_equal(as_array, corrupted.permute(0, 2, 3, 1).numpy())
    colour = corrupt(GREY.expand(-1, 3, -1, -1), name, 3, seed=4).float()
    if "noise" in name:  # drawn for each value: it has the same distribution
        assert corrupted.float().std() == pytest.approx(float(colour[:, 0].std()), rel=0.05)
        return
    luma = 0.299 * colour[:, 0] + 0.587 * colour[:, 1] + 0.114 * colour[:, 2]
    assert float((corrupted[:, 0].float() - luma).abs().max()) <= 1


@pytest.mark.parametrize("name", names_for(5, 32, 40))
def test_each_of_many_channels_is_corrupted(name):
    images = GREY.expand(-1, 5, -1, -1).contiguous()
    corrupted = corrupt(images, name, 3, seed=4)
    assert corrupted.shape == images.shape
    if "noise" not in name and name != "fog":  # fog depends on the brightest value only, which is equal here
        assert torch.equal(corrupted[:, 3], corrupt(GREY, name, 3, seed=4)[:, 0])
