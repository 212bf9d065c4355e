"""Snow, frost and fog against references in numpy, scipy and OpenCV with the same random numbers."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch

from predbn.common import Draws
from predbn.shifts import corrupt, get_corruption, weather

Images = npt.NDArray[np.uint8]
MAGICK = np.load(Path(__file__).parent / "data" / "imagemagick.npz")
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


def draws_of(name: str, severity: int, count: int, seed: int = 0) -> Draws:
    return Draws(seed, name, severity, torch.arange(count))


class StoredDraws:
    """Draws with stored numbers: the middle of a layer of noise, then an angle in [−135°, −45°)."""

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
    draws: Any = StoredDraws(MAGICK[f"{key}_noise"], float(MAGICK[f"{key}_angle"]))
    made = weather.snow(x, get_corruption("snow").constant(severity, constants), draws).clamp(0, 1).mul(255).byte()
    difference = made[0].permute(1, 2, 0).int() - torch.from_numpy(MAGICK[key]).int()
    assert difference.abs().double().mean() < 0.3
    assert (difference.abs() > 2).double().mean() < 0.005


def test_frost_mixes_truncates_and_saturates(cifar: Images) -> None:
    x = cifar[:50]
    plain = corrupt(np.zeros_like(x), "frost", 1, seed=0, index=range(50), constants="imagenet")
    image_weight, frost_weight, scale = get_corruption("frost").constant(1, "imagenet")
    crops = weather.frost_crops(draws_of("frost", 1, 50), scale, 32, 32).permute(0, 2, 3, 1).numpy()
    assert np.abs(plain.astype(int) - np.floor(crops * frost_weight)).max() <= 1
    made = corrupt(x, "frost", 1, seed=0, index=range(50), constants="imagenet")
    expected = np.clip(image_weight * x + frost_weight * crops, 0, 255).astype(np.uint8)
    assert np.abs(made.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_frost_is_a_crop_of_one_of_five_pictures(constants: Any) -> None:
    """On black, every image occurs in a picture; pictures 2 and 3 have the same pixels."""
    count, side = 16, 32
    ice = get_corruption("frost").constant(3, constants)[1]
    black = np.zeros((count, side, side, 3), np.uint8)
    made = corrupt(black, "frost", 3, seed=0, index=range(count), constants=constants)
    folder = Path(weather.__file__).parent / "frost"
    faded = []
    for name in ("frost1.png", "frost2.png", "frost4.jpg", "frost5.jpg"):
        picture = cv2.imread(str(folder / name))
        assert picture is not None
        if constants == "cifar":
            picture = cv2.resize(picture, (0, 0), fx=0.2, fy=0.2)
        faded.append((ice * picture[..., ::-1].astype(np.float64) + 1e-4).astype(np.uint8))
    seen = set()
    for image in made:
        misses = [cv2.matchTemplate(one, image, cv2.TM_SQDIFF)[:-1, :-1].min() / side**2 for one in faded]
        assert min(misses) < 0.1
        seen.add(int(np.argmin(misses)))
    assert seen == {0, 1, 2, 3}


def test_frost_covers_images_larger_than_its_pictures() -> None:
    made = corrupt(np.zeros((4, 700, 700, 3), np.uint8), "frost", 2, seed=0, index=range(4))
    assert made.shape == (4, 700, 700, 3)
    assert corrupt(np.zeros((4, 64, 64, 3), np.uint8), "frost", 2, seed=0, index=range(4)).shape == (4, 64, 64, 3)


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_adds_plasma_and_keeps_the_brightest(constants: Any, severity: int, cifar: Images, large: Images) -> None:
    side = 32 if constants == "cifar" else 224
    x = cifar[:3] if side == 32 else large[:3]
    amount, decay = get_corruption("fog").constant(severity, constants)
    made = corrupt(x, "fog", severity, seed=5, index=range(3), constants=constants)
    mist = weather.plasma(draws_of("fog", severity, 3, seed=5), 32 if side == 32 else 256, decay).numpy()
    for image, got, layer in zip(x, made, mist, strict=True):
        clean = image / 255.0
        foggy = (clean + amount * layer[:side, :side, None]) * clean.max() / (clean.max() + amount)
        expected = (np.clip(foggy, 0, 1) * 255).astype(np.uint8)
        assert np.abs(got.astype(int) - expected).max() <= 1


def plasma_reference(uniform: np.ndarray, side: int, decay: float) -> np.ndarray:
    """Diamond-square point by point on the torus; offsets in the order centre, horizontal edge, vertical edge."""
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
                corner = points[r, c]
                across = corner + points[r, (c + step) % side] + points[r + half, c + half]
                points[r, c + half] = (across + points[r - half, c + half]) / 4 + offset[1, i, j]
                down = corner + points[(r + step) % side, c] + points[r + half, c + half]
                points[r + half, c] = (down + points[r + half, c - half]) / 4 + offset[2, i, j]
        step, wibble = half, wibble / decay
    points -= points.min()
    return points / points.max()


@pytest.mark.parametrize(("side", "decay"), [(32, 3.0), (32, 1.75), (64, 1.4)])
def test_plasma_equals_diamond_square_point_by_point(side: int, decay: float) -> None:
    made = weather.plasma(Draws(0, "fog", 1, torch.arange(3)), side, decay).numpy()
    uniform = Draws(0, "fog", 1, torch.arange(3)).uniform(side * side).numpy().astype(np.float64)
    for one, numbers in zip(made, uniform, strict=True):
        assert np.abs(one - plasma_reference(numbers, side, decay)).max() < 1e-4
