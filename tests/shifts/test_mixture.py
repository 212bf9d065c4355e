"""The images of a mixture are those that `corrupt` makes of them."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from predbn.shifts import ShiftError, corrupt, draw_kinds, mix, names

Images = npt.NDArray[np.uint8]
FIVE = [("fog", 1), ("contrast", 3), ("shot_noise", 5), ("pixelate", 2), ("jpeg_compression", 4)]


def test_each_image_is_as_its_kind_makes_it(cifar: Images) -> None:
    images, index = cifar[:60], np.arange(60) + 100
    mixed, which = mix(images, FIVE, seed=3, index=index)
    for kind, (name, severity) in enumerate(FIVE):
        members = (which == kind).numpy()
        pure = corrupt(images[members], name, severity, seed=3, index=index[members])
        assert members.any()
        assert np.array_equal(mixed[members], pure)


def test_does_not_depend_on_the_batch(cifar: Images) -> None:
    images = torch.from_numpy(cifar[:40]).permute(0, 3, 1, 2).contiguous()
    whole, which = mix(images, FIVE, seed=0, index=range(40))
    part, some = mix(images[10:20], FIVE, seed=0, index=range(10, 20))
    assert torch.equal(part, whole[10:20])
    assert torch.equal(some, which[10:20])


def test_all_19_kinds_are_equally_likely() -> None:
    kinds = [(name, 1) for name in names("all")]
    black = np.zeros((19_000, 0, 0, 3), np.uint8)
    with pytest.raises(ShiftError, match="pixels"):
        mix(black, kinds, seed=0, index=range(19_000))
    which = mix(np.zeros((5000, 1, 1, 3), np.uint8), [("contrast", 1)] * 19, seed=0, index=range(5000))[1]
    assert torch.equal(which, draw_kinds(19, seed=0, index=range(5000)))
    assert stats.chisquare(torch.bincount(which, minlength=19).numpy()).pvalue > 1e-3


def test_wrong_input(cifar: Images) -> None:
    with pytest.raises(ShiftError, match="at least one"):
        mix(cifar[:2], [], seed=0, index=[0, 1])
    with pytest.raises(ShiftError, match="for each of 2 images"):
        mix(cifar[:2], FIVE, seed=0, index=[0])
