"""Each operator against scipy, and the product in blocks against the whole matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from predbn.shifts.separable import Operator, apply_separable, gaussian_operator, mirrored_operator, zoom_operator

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [1, 2, 7, 32, 101])
@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 2.5, 6.0])
def test_gaussian_is_scipys(size: int, sigma: float) -> None:
    expected = ndimage.gaussian_filter1d(np.eye(size), sigma, axis=0, mode="nearest", truncate=4.0)
    assert np.abs(gaussian_operator(size, sigma, CPU).matrix.numpy() - expected).max() < 1e-6


@pytest.mark.parametrize("size", [1, 2, 5, 32, 101])
@pytest.mark.parametrize("taps", [1, 3, 9, 21])
def test_mirrored_filter_is_scipys(size: int, taps: int) -> None:
    weights = np.random.default_rng(0).normal(size=taps)
    expected = ndimage.correlate1d(np.eye(size), weights, axis=0, mode="mirror")
    made = mirrored_operator(size, torch.from_numpy(weights), CPU).matrix.numpy()
    assert np.abs(made - expected).max() < 1e-5


@pytest.mark.parametrize("size", [5, 32, 47, 224])
@pytest.mark.parametrize("zoom", [1.0, 1.01, 1.07, 1.25, 1.75, 2.25, 4.5])
def test_zoom_is_scipys(size: int, zoom: float) -> None:
    middle = math.ceil(size / zoom)
    first = (size - middle) // 2
    large = ndimage.zoom(np.eye(size)[first : first + middle], (zoom, 1), order=1)
    trim = (len(large) - size) // 2
    expected = large[trim : trim + size]
    assert np.abs(zoom_operator(size, zoom, CPU).matrix.numpy() - expected).max() < 1e-6
    shown = zoom_operator(size, zoom, CPU, crop=False).matrix.numpy()
    assert np.abs(shown - expected[:, first : first + middle]).max() < 1e-6


def test_blocks_give_the_whole_product_and_can_be_added() -> None:
    x = torch.randn(2, 3, 100, 70)
    rows, columns = gaussian_operator(100, 2.0, CPU), zoom_operator(70, 1.3, CPU)
    assert len(rows.blocks) > 1
    expected = rows.matrix @ x @ columns.matrix.T
    assert torch.allclose(apply_separable(x, rows, columns), expected, atol=1e-5)
    total = torch.randn(2, 3, 100, 70)
    assert torch.allclose(apply_separable(x, rows, columns, out=total.clone()), total + expected, atol=1e-5)


def test_blocks_leave_out_nothing_but_zeros() -> None:
    matrix = torch.zeros(90, 90)
    matrix[torch.arange(90), (torch.arange(90) * 7) % 90] = 1.0
    operator = Operator.from_matrix(matrix, CPU)
    kept = torch.zeros(90, 90)
    for top, bottom, left, right in operator.blocks:
        kept[top:bottom, left:right] = operator.matrix[top:bottom, left:right]
    assert torch.equal(kept, matrix)
