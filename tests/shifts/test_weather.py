"""Snow, frost, fog and spatter against references in numpy, scipy and OpenCV fed with the same numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from predbn.shifts import corrupt, pictures, weather
from predbn.shifts.plasma import plasma
from predbn.shifts.random import Draws
from predbn.shifts.registry import get
from predbn.shifts.water import droplets

MAGICK = np.load(Path(__file__).parent / "data" / "imagemagick.npz")
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


def images(count: int, side: int, seed: int = 0) -> np.ndarray:
    """Soft blobs with some grain, uint8 NHWC."""
    rng = np.random.default_rng(seed)
    soft = ndimage.gaussian_filter(rng.normal(size=(count, side, side, 3)), (0, 3, 3, 0))
    rough = soft / soft.std() * 60 + 120 + rng.normal(size=soft.shape) * 10
    return np.clip(rough, 0, 255).astype(np.uint8)


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


@pytest.mark.parametrize("constants", SETS)
def test_frost_is_a_crop_of_one_of_five_pictures(constants: Any) -> None:
    """On black, every image is found again in a picture; pictures 2 and 3 hold the same pixels."""
    count, side = 16, 32
    ice = get("frost").constant(3, constants)[1]
    black = np.zeros((count, side, side, 3), np.uint8)
    made = corrupt(black, "frost", 3, seed=0, index=range(count), constants=constants)
    folder = Path(pictures.__file__).parent / "frost"
    faint = []
    for name in ("frost1.png", "frost2.png", "frost4.jpg", "frost5.jpg"):
        picture = cv2.imread(str(folder / name))
        assert picture is not None
        if constants == "cifar":
            picture = cv2.resize(picture, (0, 0), fx=0.2, fy=0.2)
        faint.append((ice * picture[..., ::-1].astype(np.float64) + 1e-4).astype(np.uint8))
    found = set()
    for image in made:
        misses = [cv2.matchTemplate(one, image, cv2.TM_SQDIFF)[:-1, :-1].min() / side**2 for one in faint]
        assert min(misses) < 0.1
        found.add(int(np.argmin(misses)))
    assert found == {0, 1, 2, 3}


def test_frost_mixes_truncates_and_saturates() -> None:
    x = images(50, 32)
    plain = corrupt(np.zeros_like(x), "frost", 1, seed=0, index=range(50), constants="imagenet")
    own, ice, scale = get("frost").constant(1, "imagenet")
    crops = pictures.frost_crops(draws_of("frost", 1, 50), scale, 32, 32).permute(0, 2, 3, 1).numpy()
    assert np.abs(plain.astype(int) - np.floor(crops * ice)).max() <= 1
    made = corrupt(x, "frost", 1, seed=0, index=range(50), constants="imagenet")
    wanted = np.clip(own * x + ice * crops, 0, 255).astype(np.uint8)
    assert np.abs(made.astype(int) - wanted).max() <= 1


def test_frost_covers_images_larger_than_its_pictures() -> None:
    made = corrupt(images(4, 700), "frost", 2, seed=0, index=range(4))
    assert made.shape == (4, 700, 700, 3)
    assert corrupt(images(4, 64), "frost", 2, seed=0, index=range(4)).shape == (4, 64, 64, 3)


def test_frost_places_are_uniform() -> None:
    draws = draws_of("frost", 1, 4000)
    which = draws.integers(0, 5)
    assert stats.chisquare(np.bincount(which.numpy(), minlength=5)).pvalue > 1e-4
    assert [tuple(p.shape) for p in pictures.frost_pictures(1.0, 32, 32, torch.device("cpu"))] == [
        (3, 600, 900),
        (3, 315, 560),
        (3, 315, 560),
        (3, 350, 527),
        (3, 495, 660),
    ]


def plasma_reference(uniform: np.ndarray, side: int, decay: float) -> np.ndarray:
    """Diamond-square point by point on the torus; offsets in the order centre, level edge, upright edge."""
    points = np.zeros((side, side))
    step, wibble, used = side, 100.0, 1
    while step >= 2:
        half, cells = step // 2, side // step
        level = uniform[used : used + 3 * cells * cells].reshape(3, cells, cells)
        used += 3 * cells * cells
        offset = wibble * (2 * wibble * level - wibble)
        for i in range(cells):
            for j in range(cells):
                r, c = i * step, j * step
                corners = [points[(r + a) % side, (c + b) % side] for a in (0, step) for b in (0, step)]
                points[r + half, c + half] = sum(corners) / 4 + offset[0, i, j]
        for i in range(cells):
            for j in range(cells):
                r, c = i * step, j * step
                here = points[r, c]
                across = here + points[r, (c + step) % side] + points[r + half, c + half]
                points[r, c + half] = (across + points[r - half, c + half]) / 4 + offset[1, i, j]
                down = here + points[(r + step) % side, c] + points[r + half, c + half]
                points[r + half, c] = (down + points[r + half, c - half]) / 4 + offset[2, i, j]
        step, wibble = half, wibble / decay
    points -= points.min()
    return points / points.max()


@pytest.mark.parametrize(("side", "decay"), [(32, 3.0), (32, 1.75), (64, 1.4)])
def test_plasma_equals_diamond_square_point_by_point(side: int, decay: float) -> None:
    made = plasma(draws_of("fog", 1, 3), side, decay).numpy()
    uniform = draws_of("fog", 1, 3).uniform(side * side).numpy().astype(np.float64)
    for one, numbers in zip(made, uniform, strict=True):
        assert np.abs(one - plasma_reference(numbers, side, decay)).max() < 1e-4


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_adds_plasma_and_keeps_the_brightest(constants: Any, severity: int) -> None:
    side = 32 if constants == "cifar" else 224
    x = images(3, side)
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
def test_spatter_equals_the_reference(constants: Any, severity: int) -> None:
    side, count = (32, 16) if constants == "cifar" else (224, 3)
    x = images(count, side)
    made = corrupt(x, "spatter", severity, seed=0, index=range(count), constants=constants)
    noise = draws_of("spatter", severity, count).normal(side, side).numpy().astype(np.float64)
    c = get("spatter").constant(severity, constants)
    wanted = np.stack([spatter_reference(a, b, c) for a, b in zip(x, noise, strict=True)])
    difference = np.abs(made.astype(int) - wanted)
    assert (difference > 1).mean() < 0.001
    assert np.abs(made.astype(int) - x).mean() > 0.3


def test_a_layer_without_liquid_changes_nothing() -> None:
    assert not droplets(torch.zeros(2, 32, 32)).any()


@pytest.mark.parametrize("name", ["snow", "frost", "fog", "spatter"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_an_image_gets_the_same_weather_in_any_batch(name: str, severity: int) -> None:
    x = images(12, 32)
    whole = corrupt(x, name, severity, seed=1, index=range(12))
    some = [7, 2, 11]
    assert np.array_equal(corrupt(x[some], name, severity, seed=1, index=some), whole[some])
    other = corrupt(x, name, severity, seed=2, index=range(12))
    assert not np.array_equal(other, whole)


def test_snow_draws_only_what_the_zoom_shows() -> None:
    asked = []

    class Counting(Draws):
        def normal(self, *shape: int) -> torch.Tensor:
            asked.append(shape)
            return super().normal(*shape)

    x = torch.rand(2, 3, 224, 224)
    weather.snow(x, get("snow").constant(3, "imagenet"), Counting(0, "snow", 3, torch.arange(2)))
    assert asked == [(math.ceil(224 / 4), math.ceil(224 / 4))]
