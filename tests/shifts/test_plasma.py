"""Plasma fractals against diamond-square, one point after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from predbn.common.random import Draws
from predbn.shifts.plasma import plasma


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
    made = plasma(Draws(0, "fog", 1, torch.arange(3)), side, decay).numpy()
    uniform = Draws(0, "fog", 1, torch.arange(3)).uniform(side * side).numpy().astype(np.float64)
    for one, numbers in zip(made, uniform, strict=True):
        assert np.abs(one - plasma_reference(numbers, side, decay)).max() < 1e-4
