"""The blurs against simple references written with scipy and OpenCV."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import ndimage

from predbn.common import Draws
from predbn.shifts import corrupt, get_corruption

Images = npt.NDArray[np.uint8]
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


def truncated(x: np.ndarray) -> np.ndarray:
    """To uint8 by truncation; an integer stays that integer even if rounding has put it slightly below."""
    return (np.clip(x, 0, 1) * 255 + 1e-4).astype(np.uint8)


def gaussian_reference(image: np.ndarray, sigma: float) -> np.ndarray:
    x = image / 255.0
    return truncated(ndimage.gaussian_filter(x, (sigma, sigma, 0), mode="nearest", truncate=4.0))


def defocus_reference(image: np.ndarray, c: tuple[float, float]) -> np.ndarray:
    radius, softness = c
    line = np.arange(-8, 9) if radius <= 8 else np.arange(-int(radius), int(radius) + 1)
    across, down = np.meshgrid(line, line)
    disk = np.array(across**2 + down**2 <= radius**2, dtype=np.float32)
    disk /= disk.sum()
    kernel = cv2.GaussianBlur(disk, ksize=(3, 3) if radius <= 8 else (5, 5), sigmaX=softness)
    x = image / 255.0
    return truncated(np.stack([cv2.filter2D(x[..., k], -1, kernel) for k in range(3)], axis=-1))


def zoom_reference(image: np.ndarray, c: tuple[float, float]) -> np.ndarray:
    x = (image / 255.0).astype(np.float32)
    size, zooms = len(image), np.arange(1, *c)
    total = np.zeros_like(x)
    for zoom in zooms:
        middle = int(np.ceil(size / zoom))
        first = (size - middle) // 2
        large = ndimage.zoom(x[first : first + middle, first : first + middle], (zoom, zoom, 1), order=1)
        trim = (len(large) - size) // 2
        total += large[trim : trim + size, trim : trim + size]
    return truncated((x + total) / (len(zooms) + 1))


@pytest.mark.parametrize(
    ("name", "reference"),
    [("gaussian_blur", gaussian_reference), ("defocus_blur", defocus_reference), ("zoom_blur", zoom_reference)],
)
@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_equals_the_reference_to_one_grey_level(
    name: str, reference: Any, size: int, constants: Any, severity: int, cifar: Images, large: Images
) -> None:
    images = cifar[:16] if size == 32 else large[:2]
    made = corrupt(images, name, severity, seed=0, index=range(len(images)), constants=constants)
    c = get_corruption(name).constant(severity, constants)
    expected = np.stack([reference(image, c) for image in images])
    difference = np.abs(made.astype(int) - expected)
    assert difference.max() <= 1
    assert difference.mean() < 0.02


@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur"])
def test_images_need_not_be_square(name: str, large: Images) -> None:
    images = np.ascontiguousarray(large[:2, 30:70, 20:95])
    reference = gaussian_reference if name == "gaussian_blur" else defocus_reference
    made = corrupt(images, name, 4, seed=0, index=[0, 1], constants="imagenet")
    expected = np.stack([reference(image, get_corruption(name).constant(4, "imagenet")) for image in images])
    assert np.abs(made.astype(int) - expected).max() <= 1


def blurred(image: np.ndarray, sigma: float) -> np.ndarray:
    x = ndimage.gaussian_filter(image / 255.0, (sigma, sigma, 0), mode="nearest", truncate=4.0)
    return (x * 255 + 1e-4).astype(np.uint8)


def walk(image: np.ndarray, offsets: np.ndarray, reach: int) -> np.ndarray:
    """From the bottom right to the top left, copy its neighbour's value to one pixel after another."""
    image = image.copy()
    height, width = image.shape[:2]
    for h in range(height - reach, reach, -1):
        for w in range(width - reach, reach, -1):
            dy, dx = offsets[h - reach - 1, w - reach - 1]
            image[h, w] = image[h + dy, w + dx]
    return image


def drawn_offsets(draws: Draws, height: int, width: int, reach: int) -> np.ndarray:
    """[N, H − 2d, W − 2d, 2] (dy, dx), from the lower and the upper half of each word."""
    words = draws.bits(height - 2 * reach, width - 2 * reach).numpy().view(np.uint32).astype(np.int64)
    parts = np.stack([words & 0xFFFF, words >> 16], axis=-1)
    return (parts * 2 * reach >> 16) - reach


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_glass_blur_equals_the_sequential_loop(constants: Any, severity: int, cifar: Images) -> None:
    images = cifar[:3]
    index = torch.tensor([5, 0, 9])
    sigma, reach, rounds = get_corruption("glass_blur").constant(severity, constants)
    made = corrupt(images, "glass_blur", severity, seed=3, index=index, constants=constants)
    draws = Draws(3, "glass_blur", severity, index)
    expected = [blurred(image, sigma) for image in images]
    for _ in range(rounds):
        offsets = drawn_offsets(draws, 32, 32, reach)
        expected = [walk(image, offset, reach) for image, offset in zip(expected, offsets, strict=True)]
    final = np.stack([blurred(image, sigma) for image in expected])
    difference = np.abs(made.astype(int) - final)
    assert difference.max() <= 2
    assert (difference > 1).mean() < 1e-3
