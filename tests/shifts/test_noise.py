"""Noise has the distribution that it should have, by formula and by count."""

import numpy as np
import pytest
import torch
from scipy import stats

from predbn.common import Draws
from predbn.shifts import corrupt, noise
from predbn.shifts.noise import alias_table, round_to_units, sample_levels

MATRICES = {
    "gaussian": (noise.gaussian_matrix, (0.04, 0.10, 0.38)),
    "shot": (noise.shot_matrix, (500, 50, 60, 3)),
    "impulse": (noise.impulse_matrix, (0.01, 0.27)),
    "speckle": (noise.speckle_matrix, (0.06, 0.60)),
}
CASES = [(name, c) for name, (_, constants) in MATRICES.items() for c in constants]


def matrix_of(table: torch.Tensor) -> np.ndarray:
    """The matrix that an alias table draws from."""
    entry = np.roll(table.numpy(), -(1 << 15)).astype(np.int64).reshape(256, 256)
    own = entry & 255 == np.arange(256)
    keep = np.where(own, 1.0, ((entry >> 8) + 128) / 256)
    matrix = keep / 256
    np.add.at(matrix, (np.arange(256)[:, None], entry & 255), (1 - keep) / 256)
    return matrix


@pytest.mark.parametrize(("name", "c"), CASES)
def test_the_alias_table_is_the_matrix(name: str, c: float) -> None:
    matrix = MATRICES[name][0](c)
    assert np.allclose(matrix.sum(axis=1), 1, atol=1e-9)
    drawn_from = matrix_of(alias_table(matrix))
    assert np.array_equal(drawn_from, round_to_units(matrix) / 65536)
    assert np.abs(drawn_from - matrix).max() < 2**-16


def reference(name: str, c: float, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The benchmark's own recipe, in float64."""
    if name == "gaussian":
        y = x + rng.normal(0, c, x.shape)
    elif name == "shot":
        y = rng.poisson(x * c) / c
    elif name == "speckle":
        y = x + x * rng.normal(0, c, x.shape)
    else:
        flip, salt = rng.random(x.shape) < c, rng.random(x.shape) < 0.5
        y = np.where(flip, salt.astype(float), x)
    return (np.clip(y, 0, 1) * 255).astype(np.uint8)


@pytest.mark.parametrize(("name", "c"), CASES)
def test_the_matrix_is_what_the_recipe_does(name: str, c: float) -> None:
    rng = np.random.default_rng(1)
    matrix = MATRICES[name][0](c)
    for level in (0, 1, 17, 128, 254, 255):
        done = reference(name, c, np.full(100_000, level / 255), rng)
        counts = np.bincount(done, minlength=256)
        expected = matrix[level] * len(done)
        often = expected > 10
        seen = np.append(counts[often], counts[~often].sum())
        expected_counts = np.append(expected[often], expected[~often].sum())
        kept = expected_counts > 1e-6
        assert seen[~kept].sum() == 0
        if kept.sum() > 1:
            assert (
                stats.chisquare(
                    seen[kept], expected_counts[kept] * seen[kept].sum() / expected_counts[kept].sum()
                ).pvalue
                > 1e-5
            )


@pytest.mark.parametrize(("name", "c"), CASES)
def test_drawing_follows_the_matrix(name: str, c: float) -> None:
    matrix = MATRICES[name][0](c)
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 256).expand(400, 3, 256).contiguous()
    done = sample_levels(levels, alias_table(matrix), Draws(0, name, 1, torch.arange(400))).to(torch.float64)
    mean = matrix @ np.arange(256)
    spread = np.sqrt(np.maximum(matrix @ np.arange(256) ** 2 - mean**2, 0))
    error = (done.mean(dim=(0, 1)).numpy() - mean) * 1200**0.5
    assert np.all(np.abs(error) <= 5 * spread + 1e-4)


def test_gaussian_noise_is_independent_between_channels() -> None:
    x = np.full((50, 32, 32, 3), 128, np.uint8)
    done = corrupt(x, "gaussian_noise", 5, seed=0, index=np.arange(50)).astype(np.float64).reshape(-1, 3)
    correlation = np.corrcoef(done.T) - np.eye(3)
    assert np.abs(correlation).max() * len(done) ** 0.5 < 4
    assert done.std() == pytest.approx(0.10 * 255, rel=0.01)
