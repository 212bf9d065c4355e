"""Motion blur against what the real ImageMagick made of the same pictures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from predbn.shifts.motion import _by_gather, _by_slices, _offsets, _weights, motion_blur_uint8
from predbn.shifts.registry import get

Images = npt.NDArray[np.uint8]
MAGICK = np.load(Path(__file__).parent / "data" / "imagemagick.npz")
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_agrees_with_imagemagick(constants: Any, severity: int) -> None:
    picture = torch.from_numpy(MAGICK[f"{constants}_picture"]).permute(2, 0, 1)[None]
    angle = torch.tensor([float(MAGICK[f"{constants}_motion_{severity}_angle"])])
    made = motion_blur_uint8(picture, *get("motion_blur").constant(severity, constants), angle)
    wanted = torch.from_numpy(MAGICK[f"{constants}_motion_{severity}"])
    difference = made[0].permute(1, 2, 0).int() - wanted.int()
    assert difference.abs().max() <= 1
    assert difference.abs().double().mean() < 0.01


def test_both_ways_of_motion_blurring_agree(cifar: Images) -> None:
    x = torch.from_numpy(cifar[:16, :30]).permute(0, 3, 1, 2).contiguous()
    angle = torch.linspace(-180, 180, 16)
    weights = _weights(15, 8)
    offsets = _offsets(angle, len(weights))
    low, high = offsets.amin((0, 1)), offsets.amax((0, 1))
    margins = (-int(low[1]), int(high[1]), -int(low[0]), int(high[0]))
    slices = _by_slices(x, weights, offsets - low, margins)
    gathered = _by_gather(x, weights, offsets - low, margins)
    assert (slices.int() - gathered.int()).abs().max() <= 1
    assert torch.equal(slices, motion_blur_uint8(x, 15, 8, angle))


def test_the_tail_of_a_motion_kernel_that_is_left_out_is_negligible() -> None:
    for constants in SETS:
        for severity in SEVERITIES:
            radius, sigma = get("motion_blur").constant(severity, constants)
            whole = [math.exp(-(i * i) / (2 * sigma * sigma)) for i in range(2 * radius + 1)]
            kept = len(_weights(radius, sigma))
            assert sum(whole[kept:]) / sum(whole) <= 1e-4
