"""The blurs against straightforward references: scipy, OpenCV, a plain loop, the real ImageMagick."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from predbn.shifts import corrupt
from predbn.shifts.glass import _offsets, shuffled_pixels
from predbn.shifts.motion import _by_gather, _by_slices, _weights, motion_blur_uint8
from predbn.shifts.motion import _offsets as motion_offsets
from predbn.shifts.random import Draws
from predbn.shifts.registry import get

MAGICK = np.load(Path(__file__).parent / "data" / "imagemagick.npz")
SETS = ("cifar", "imagenet")
SEVERITIES = (1, 2, 3, 4, 5)
SIZES = ((32, 32), (224, 224))


def pictures(count: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    """Soft blobs with some grain and some saturated parts, uint8 NHWC."""
    rng = np.random.default_rng(seed)
    soft = ndimage.gaussian_filter(rng.normal(size=(count, height, width, 3)), (0, 3, 3, 0))
    rough = soft / soft.std() * 70 + 128 + rng.normal(size=soft.shape) * 10
    return np.clip(rough, 0, 255).astype(np.uint8)


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
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_equals_the_reference_to_one_grey_level(
    name: str, reference: Any, size: tuple[int, int], constants: Any, severity: int
) -> None:
    images = pictures(2 if size[0] > 64 else 4, *size)
    made = corrupt(images, name, severity, seed=0, index=range(len(images)), constants=constants)
    c = get(name).constant(severity, constants)
    wanted = np.stack([reference(image, c) for image in images])
    difference = np.abs(made.astype(int) - wanted)
    assert difference.max() <= 1
    assert difference.mean() < 0.02


@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur"])
def test_images_need_not_be_square(name: str) -> None:
    images = pictures(2, 40, 75)
    reference = gaussian_reference if name == "gaussian_blur" else defocus_reference
    made = corrupt(images, name, 4, seed=0, index=[0, 1], constants="imagenet")
    wanted = np.stack([reference(image, get(name).constant(4, "imagenet")) for image in images])
    assert np.abs(made.astype(int) - wanted).max() <= 1


def walk(image: np.ndarray, offsets: np.ndarray, reach: int) -> np.ndarray:
    """One pixel after another, from the bottom right to the top left, receives its neighbour's value."""
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


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur_equals_the_sequential_loop(constants: Any, severity: int) -> None:
    images = pictures(3, 32, 32)
    index = torch.tensor([5, 0, 9])
    sigma, reach, rounds = get("glass_blur").constant(severity, constants)
    made = corrupt(images, "glass_blur", severity, seed=3, index=index, constants=constants)
    draws = Draws(3, "glass_blur", severity, index)
    wanted = [gaussian_reference(image, sigma) for image in images]
    for _ in range(rounds):
        offsets = drawn_offsets(draws, 32, 32, reach)
        wanted = [walk(image, offset, reach) for image, offset in zip(wanted, offsets, strict=True)]
    final = np.stack([gaussian_reference(image, sigma) for image in wanted])
    difference = np.abs(made.astype(int) - final)
    assert difference.max() <= 2
    assert (difference > 1).mean() < 1e-3


@pytest.mark.parametrize(
    ("height", "width", "reach", "rounds"), [(32, 32, 1, 2), (23, 40, 4, 1), (41, 30, 2, 3)]
)
def test_chains_resolve_to_what_the_loop_copies(height: int, width: int, reach: int, rounds: int) -> None:
    index = torch.arange(4)
    shown = shuffled_pixels(Draws(0, "glass_blur", 1, index), height, width, reach, rounds)
    draws = Draws(0, "glass_blur", 1, index)
    wanted = [
        np.arange(n * height * width, (n + 1) * height * width).reshape(height, width) for n in range(4)
    ]
    for _ in range(rounds):
        offsets = drawn_offsets(draws, height, width, reach)
        wanted = [walk(place, offset, reach) for place, offset in zip(wanted, offsets, strict=True)]
    assert np.array_equal(shown.numpy(), np.stack(wanted).ravel())


@pytest.mark.parametrize("reach", [1, 2, 3, 4])
def test_neighbours_are_uniform_from_minus_d_to_d_minus_one(reach: int) -> None:
    width = 200
    flat = _offsets(Draws(1, "glass_blur", 1, torch.arange(4)), 150, width, reach).numpy().ravel()
    down, right = np.divmod(flat + reach * (width + 1), width)
    counts = np.bincount(down * 2 * reach + right, minlength=4 * reach * reach)
    assert len(counts) == 4 * reach * reach
    assert stats.chisquare(counts).pvalue > 1e-4


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


def test_both_ways_of_motion_blurring_agree() -> None:
    x = torch.from_numpy(pictures(16, 36, 44)).permute(0, 3, 1, 2).contiguous()
    angle = torch.linspace(-180, 180, 16)
    weights = _weights(15, 8)
    offsets = motion_offsets(angle, len(weights))
    low, high = offsets.amin((0, 1)), offsets.amax((0, 1))
    margins = (-int(low[1]), int(high[1]), -int(low[0]), int(high[0]))
    slices = _by_slices(x, weights, offsets - low, margins)
    gathered = _by_gather(x, weights, offsets - low, margins)
    assert (slices.int() - gathered.int()).abs().max() <= 1
    assert torch.equal(slices, motion_blur_uint8(x, 15, 8, angle))


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


@pytest.mark.parametrize("name", ["glass_blur", "motion_blur"])
def test_a_small_image_works_or_is_refused(name: str) -> None:
    side = get(name).smallest
    images = pictures(1, side, side)
    for constants in SETS:
        made = corrupt(images, name, 5, seed=0, index=[0], constants=constants)  # type: ignore[arg-type]
        assert made.shape == images.shape


def test_the_tail_of_a_motion_kernel_that_is_left_out_is_negligible() -> None:
    for constants in SETS:
        for severity in SEVERITIES:
            radius, sigma = get("motion_blur").constant(severity, constants)
            whole = [math.exp(-(i * i) / (2 * sigma * sigma)) for i in range(2 * radius + 1)]
            kept = len(_weights(radius, sigma))
            assert sum(whole[kept:]) / sum(whole) <= 1e-4
