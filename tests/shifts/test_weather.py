"""Snow, frost, fog and spatter against references in numpy, scipy and OpenCV fed with the same numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import ndimage

from predbn.common.random import Draws
from predbn.shifts import corrupt, weather
from predbn.shifts import frost as pictures
from predbn.shifts.plasma import plasma
from predbn.shifts.registry import get
from predbn.shifts.water import droplets

Images = npt.NDArray[np.uint8]
MAGICK = np.load(Path(__file__).parent / "data" / "imagemagick.npz")
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


def draws_of(name: str, severity: int, count: int, seed: int = 0) -> Draws:
    return Draws(seed, name, severity, torch.arange(count))


class Given:
    """Draws that hand out stored numbers: the middle of a layer of noise, then an angle in [−135°, −45°)."""

    device = torch.device("cpu")

    def __init__(self, noise: np.ndarray, angle: float) -> None:
        self._noise, self._angle = torch.from_numpy(noise.astype(np.float32)), angle

    def __len__(self) -> int:
        return 1

    def normal(self, height: int, width: int) -> torch.Tensor:
        top, left = (len(self._noise) - height) // 2, (len(self._noise) - width) // 2
        return self._noise[None, top : top + height, left : left + width].clone()

    def uniform(self) -> torch.Tensor:
        return torch.tensor([(self._angle + 135) / 90])


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_agrees_with_imagemagick(constants: Any, severity: int) -> None:
    key = f"{constants}_snow_{severity}"
    x = torch.from_numpy(MAGICK[f"{constants}_picture"]).permute(2, 0, 1)[None] / 255
    given: Any = Given(MAGICK[f"{key}_noise"], float(MAGICK[f"{key}_angle"]))
    made = weather.snow(x, get("snow").constant(severity, constants), given).clamp(0, 1).mul(255).byte()
    difference = made[0].permute(1, 2, 0).int() - torch.from_numpy(MAGICK[key]).int()
    assert difference.abs().double().mean() < 0.3
    assert (difference.abs() > 2).double().mean() < 0.005


def test_snow_draws_only_what_the_zoom_shows() -> None:
    asked = []

    class Counting(Draws):
        def normal(self, *shape: int) -> torch.Tensor:
            asked.append(shape)
            return super().normal(*shape)

    x = torch.rand(2, 3, 224, 224)
    weather.snow(x, get("snow").constant(3, "imagenet"), Counting(0, "snow", 3, torch.arange(2)))
    assert asked == [(math.ceil(224 / 4), math.ceil(224 / 4))]


def test_frost_mixes_truncates_and_saturates(cifar: Images) -> None:
    x = cifar[:50]
    plain = corrupt(np.zeros_like(x), "frost", 1, seed=0, index=range(50), constants="imagenet")
    own, ice, scale = get("frost").constant(1, "imagenet")
    crops = pictures.frost_crops(draws_of("frost", 1, 50), scale, 32, 32).permute(0, 2, 3, 1).numpy()
    assert np.abs(plain.astype(int) - np.floor(crops * ice)).max() <= 1
    made = corrupt(x, "frost", 1, seed=0, index=range(50), constants="imagenet")
    wanted = np.clip(own * x + ice * crops, 0, 255).astype(np.uint8)
    assert np.abs(made.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_adds_plasma_and_keeps_the_brightest(constants: Any, severity: int, cifar: Images, large: Images) -> None:
    side = 32 if constants == "cifar" else 224
    x = cifar[:3] if side == 32 else large[:3]
    amount, decay = get("fog").constant(severity, constants)
    made = corrupt(x, "fog", severity, seed=5, index=range(3), constants=constants)
    mist = plasma(draws_of("fog", severity, 3, seed=5), 32 if side == 32 else 256, decay).numpy()
    for image, got, layer in zip(x, made, mist, strict=True):
        clean = image / 255.0
        foggy = (clean + amount * layer[:side, :side, None]) * clean.max() / (clean.max() + amount)
        wanted = (np.clip(foggy, 0, 1) * 255).astype(np.uint8)
        assert np.abs(got.astype(int) - wanted).max() <= 1


def test_fog_on_a_black_image_is_black() -> None:
    assert not corrupt(np.zeros((1, 32, 32, 3), np.uint8), "fog", 3, seed=0, index=[0]).any()


def spatter_reference(image: np.ndarray, noise: np.ndarray, c: tuple[float, ...]) -> np.ndarray:
    mean, deviation, sigma, threshold, strength, mud = c
    x = image.astype(np.float32) / 255
    smooth = ndimage.gaussian_filter(noise * deviation + mean, sigma, mode="nearest", truncate=4.0)
    layer = np.where(smooth < threshold, 0, smooth)
    if mud:
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
    noise = draws_of("spatter", severity, count).normal(side, side).numpy().astype(np.float64)
    c = get("spatter").constant(severity, constants)
    wanted = np.stack([spatter_reference(a, b, c) for a, b in zip(x, noise, strict=True)])
    difference = np.abs(made.astype(int) - wanted)
    assert (difference > 1).mean() < 0.001
    assert np.abs(made.astype(int) - x).mean() > 0.3


def test_a_layer_without_liquid_changes_nothing() -> None:
    assert not droplets(torch.zeros(2, 32, 32)).any()
