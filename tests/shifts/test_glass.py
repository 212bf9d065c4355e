"""The resolved chains of glass blur against the loop that copies one pixel after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import ndimage, stats

from predbn.common.random import Draws
from predbn.shifts import corrupt
from predbn.shifts.glass import _offsets, shuffled_pixels
from predbn.shifts.registry import get

Images = npt.NDArray[np.uint8]


def blurred(image: np.ndarray, sigma: float) -> np.ndarray:
    x = ndimage.gaussian_filter(image / 255.0, (sigma, sigma, 0), mode="nearest", truncate=4.0)
    return (x * 255 + 1e-4).astype(np.uint8)


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


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_glass_blur_equals_the_sequential_loop(constants: Any, severity: int, cifar: Images) -> None:
    images = cifar[:3]
    index = torch.tensor([5, 0, 9])
    sigma, reach, rounds = get("glass_blur").constant(severity, constants)
    made = corrupt(images, "glass_blur", severity, seed=3, index=index, constants=constants)
    draws = Draws(3, "glass_blur", severity, index)
    wanted = [blurred(image, sigma) for image in images]
    for _ in range(rounds):
        offsets = drawn_offsets(draws, 32, 32, reach)
        wanted = [walk(image, offset, reach) for image, offset in zip(wanted, offsets, strict=True)]
    final = np.stack([blurred(image, sigma) for image in wanted])
    difference = np.abs(made.astype(int) - final)
    assert difference.max() <= 2
    assert (difference > 1).mean() < 1e-3


@pytest.mark.parametrize(("height", "width", "reach", "rounds"), [(32, 32, 1, 2), (23, 40, 4, 1), (41, 30, 2, 3)])
def test_chains_resolve_to_what_the_loop_copies(height: int, width: int, reach: int, rounds: int) -> None:
    index = torch.arange(4)
    shown = shuffled_pixels(Draws(0, "glass_blur", 1, index), height, width, reach, rounds)
    draws = Draws(0, "glass_blur", 1, index)
    wanted = [np.arange(n * height * width, (n + 1) * height * width).reshape(height, width) for n in range(4)]
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
