"""The blurs against straightforward references written with scipy and OpenCV."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from scipy import ndimage, stats

from predbn.shifts import corrupt
from predbn.shifts.registry import get

Images = npt.NDArray[np.uint8]
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)


def truncated(x: np.ndarray) -> np.ndarray:
    """To uint8 by truncation; a whole grey level stays whole on whichever side of it rounding has put it."""
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
    [
        ("gaussian_blur", gaussian_reference),
        ("defocus_blur", defocus_reference),
        ("zoom_blur", zoom_reference),
    ],
)
@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_equals_the_reference_to_one_grey_level(
    name: str, reference: Any, size: int, constants: Any, severity: int, cifar: Images, large: Images
) -> None:
    images = cifar[:16] if size == 32 else large[:2]
    made = corrupt(images, name, severity, seed=0, index=range(len(images)), constants=constants)
    c = get(name).constant(severity, constants)
    wanted = np.stack([reference(image, c) for image in images])
    difference = np.abs(made.astype(int) - wanted)
    assert difference.max() <= 1
    assert difference.mean() < 0.02


@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur"])
def test_images_need_not_be_square(name: str, large: Images) -> None:
    images = np.ascontiguousarray(large[:2, 30:70, 20:95])
    reference = gaussian_reference if name == "gaussian_blur" else defocus_reference
    made = corrupt(images, name, 4, seed=0, index=[0, 1], constants="imagenet")
    wanted = np.stack([reference(image, get(name).constant(4, "imagenet")) for image in images])
    assert np.abs(made.astype(int) - wanted).max() <= 1


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


def test_a_flat_image_stays_flat() -> None:
    images = np.full((2, 32, 32, 3), 255, np.uint8)
    images[1] = 37
    for name in ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"):
        for severity in SEVERITIES:
            made = corrupt(images, name, severity, seed=0, index=[0, 1])
            assert np.array_equal(made, images), (name, severity)
