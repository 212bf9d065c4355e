"""The images of a mixture are those that `corrupt` makes of them."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from predbn.shifts import ShiftError, corrupt, draw_kinds, mix

FIVE = [("fog", 1), ("contrast", 3), ("shot_noise", 5), ("pixelate", 2), ("jpeg_compression", 4)]


def test_each_image_is_as_its_kind_makes_it(cifar: npt.NDArray[np.uint8]) -> None:
    images, index = cifar[:60], np.arange(60) + 100
    mixed, which = mix(images, FIVE, seed=3, index=index)
    assert torch.equal(which, draw_kinds(5, seed=3, index=index))
    for kind, (name, severity) in enumerate(FIVE):
        members = (which == kind).numpy()
        assert members.any()
        assert np.array_equal(mixed[members], corrupt(images[members], name, severity, seed=3, index=index[members]))
    with pytest.raises(ShiftError, match="at least one"):
        mix(images, [], seed=0, index=index)


def test_all_kinds_are_equally_likely_and_do_not_depend_on_the_batch() -> None:
    which = draw_kinds(19, seed=0, index=range(5000))
    assert stats.chisquare(torch.bincount(which, minlength=19).numpy()).pvalue > 1e-3
    assert torch.equal(draw_kinds(19, seed=0, index=[7, 4000]), which[[7, 4000]])
