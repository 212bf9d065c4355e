"""Motion blur against the output of ImageMagick for the same pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from predbn.shifts import corrupt, get_corruption
from predbn.shifts.motion_blur import _blur_by_gather, _blur_by_slices, _offsets, _weights, motion_blur_at_angle

Images = npt.NDArray[np.uint8]
MAGICK = np.load(Path(__file__).parent / "data" / "imagemagick.npz")
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_agrees_with_imagemagick(constants: Any, severity: int) -> None:
    picture = torch.from_numpy(MAGICK[f"{constants}_picture"]).permute(2, 0, 1)[None]
    angle = torch.tensor([float(MAGICK[f"{constants}_motion_{severity}_angle"])])
    made = motion_blur_at_angle(picture, *get_corruption("motion_blur").constant(severity, constants), angle)
    expected = torch.from_numpy(MAGICK[f"{constants}_motion_{severity}"])
    difference = made[0].permute(1, 2, 0).int() - expected.int()
    assert difference.abs().max() <= 1
    assert difference.abs().double().mean() < 0.01


def test_both_ways_of_motion_blurring_agree(cifar: Images) -> None:
    x = torch.from_numpy(cifar[:16, :30]).permute(0, 3, 1, 2).contiguous()
    angle = torch.linspace(-180, 180, 16)
    weights = _weights(15, 8)
    offsets = _offsets(angle, len(weights))
    low, high = offsets.amin((0, 1)), offsets.amax((0, 1))
    margins = (-int(low[1]), int(high[1]), -int(low[0]), int(high[0]))
    slices = _blur_by_slices(x, weights, offsets - low, margins)
    gathered = _blur_by_gather(x, weights, offsets - low, margins)
    assert (slices.int() - gathered.int()).abs().max() <= 1
    assert torch.equal(slices, motion_blur_at_angle(x, 15, 8, angle))


def test_motion_angles_are_uniform_within_45_degrees() -> None:
    """A single bright pixel leaves a streak whose direction is the angle."""
    count, size = 400, 61
    images = np.zeros((count, size, size, 3), np.uint8)
    images[:, size // 2, size // 2] = 255
    made = corrupt(images, "motion_blur", 4, seed=0, index=range(count), constants="imagenet")[..., 0]
    weight = made.astype(float)
    down = (weight * (np.arange(size) - size // 2)[:, None]).sum((1, 2)) / weight.sum((1, 2))
    across = (weight * (np.arange(size) - size // 2)).sum((1, 2)) / weight.sum((1, 2))
    angle = np.degrees(np.arctan2(-down, -across))
    assert np.abs(angle).max() < 46.5
    assert stats.kstest(angle, stats.uniform(-45, 90).cdf).pvalue > 1e-3
