"""Spatter against a reference in numpy, scipy and OpenCV with the same random numbers."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import ndimage

from predbn.common import Draws
from predbn.shifts import corrupt, get_corruption
from predbn.shifts.spatter import droplet_weights

Images = npt.NDArray[np.uint8]
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


def spatter_reference(image: np.ndarray, noise: np.ndarray, c: tuple[float, ...]) -> np.ndarray:
    mean, deviation, sigma, threshold, strength, is_mud = c
    x = image.astype(np.float32) / 255
    smooth = ndimage.gaussian_filter(noise * deviation + mean, sigma, mode="nearest", truncate=4.0)
    layer = np.where(smooth < threshold, 0, smooth)
    if is_mud:
        cover = ndimage.gaussian_filter((layer > threshold).astype(np.float32), strength, mode="nearest")
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        out = x * (1 - cover) + np.array([63, 42, 20]) / 255 * cover
    else:
        depth = (layer * 255).astype(np.int64).astype(np.uint8)
        distance = cv2.distanceTransform(255 - cv2.Canny(depth, 50, 150), cv2.DIST_L2, 5)
        _, distance = cv2.threshold(distance, 20, 20, cv2.THRESH_TRUNC)
        surface = cv2.equalizeHist(cv2.blur(distance, (3, 3)).astype(np.uint8))
        lit = cv2.filter2D(surface, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
        weight = depth * cv2.blur(lit, (3, 3)).astype(np.float32)
        weight = weight / weight.max() * strength
        out = x + weight[..., None] * np.array([175, 238, 238]) / 255
    return (np.clip(out, 0, 1) * 255).astype(np.uint8)


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_spatter_equals_the_reference(constants: Any, severity: int, cifar: Images, large: Images) -> None:
    side, count = (32, 16) if constants == "cifar" else (224, 3)
    x = cifar[:count] if side == 32 else large[:count]
    made = corrupt(x, "spatter", severity, seed=0, index=range(count), constants=constants)
    noise = Draws(0, "spatter", severity, torch.arange(count)).normal(side, side).numpy().astype(np.float64)
    c = get_corruption("spatter").constant(severity, constants)
    expected = np.stack([spatter_reference(a, b, c) for a, b in zip(x, noise, strict=True)])
    difference = np.abs(made.astype(int) - expected)
    assert (difference > 1).mean() < 0.001
    assert np.abs(made.astype(int) - x).mean() > 0.3


def test_a_layer_without_liquid_changes_nothing() -> None:
    assert not droplet_weights(torch.zeros(2, 32, 32)).any()
