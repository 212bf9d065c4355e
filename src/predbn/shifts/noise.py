"""Noise: four corruptions that treat every value of an image by itself.

Each is written as the matrix P[g, k] of the probabilities that grey level g becomes k (see `alias`), which
includes the clipping to [0, 1] and the truncation to 8 bits: level k stands for the interval
[k, k + 1)/255, level 0 takes all that falls below it and level 255 all that falls above.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from predbn.common import Draws

from .alias import alias_table, draw
from .registry import register

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]

Matrix = npt.NDArray[np.float64]
_LEVELS = np.arange(256.0)


def _normal_matrix(deviation: Matrix) -> Matrix:
    """P of g + N(0, deviation[g]), all in grey levels."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (_LEVELS[None, 1:] - _LEVELS[:, None]) / deviation[:, None]
    below = scipy.special.ndtr(np.where(np.isnan(z), -np.inf, z))
    return np.diff(below, axis=1, prepend=0.0, append=1.0)


def gaussian_matrix(c: float) -> Matrix:
    """x + N(0, c)."""
    return _normal_matrix(np.full(256, 255.0 * c))


def speckle_matrix(c: float) -> Matrix:
    """x + x·N(0, c): the deviation grows with the level, and black stays black."""
    return _normal_matrix(_LEVELS * c)


def shot_matrix(c: float) -> Matrix:
    """Poisson(x·c)/c: every count falls on one level, ⌊255·min(count/c, 1)⌋."""
    counts = np.arange(int(c) + 1)
    level = np.minimum(counts / c, 1.0) * 255.0
    mean = (_LEVELS / 255.0 * c)[:, None]
    mass = np.exp(scipy.special.xlogy(counts, mean) - scipy.special.gammaln(counts + 1) - mean)
    matrix = np.zeros((256, 256))
    np.add.at(matrix.T, level.astype(np.int64), mass.T)
    matrix[:, 255] += np.maximum(1.0 - mass.sum(axis=1), 0.0)
    return matrix


def impulse_matrix(c: float) -> Matrix:
    """Pepper with probability c/2, salt with c/2, nothing with 1 − c."""
    matrix = np.eye(256) * (1.0 - c)
    matrix[:, 0] += c / 2.0
    matrix[:, 255] += c / 2.0
    return matrix


@lru_cache(maxsize=64)
def _table(matrix: Callable[[float], Matrix], c: float, device: torch.device) -> Tensor:
    return alias_table(matrix(c)).to(device)


@register(
    "gaussian_noise",
    family="noise",
    set="standard",
    cifar=(0.04, 0.06, 0.08, 0.09, 0.10),
    imagenet=(0.08, 0.12, 0.18, 0.26, 0.38),
    works_on="uint8",
)
def gaussian_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Normal noise of one deviation everywhere, as a sensor has it in bad light."""
    return draw(x, _table(gaussian_matrix, c, x.device), draws)


@register(
    "shot_noise",
    family="noise",
    set="standard",
    cifar=(500, 250, 100, 75, 50),
    imagenet=(60, 25, 12, 5, 3),
    works_on="uint8",
)
def shot_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Photon counting noise: a white value is c photons on average."""
    return draw(x, _table(shot_matrix, c, x.device), draws)


@register(
    "impulse_noise",
    family="noise",
    set="standard",
    cifar=(0.01, 0.02, 0.03, 0.05, 0.07),
    imagenet=(0.03, 0.06, 0.09, 0.17, 0.27),
    works_on="uint8",
)
def impulse_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Salt and pepper, drawn for each value, so that single channels of a pixel flip."""
    return draw(x, _table(impulse_matrix, c, x.device), draws)


@register(
    "speckle_noise",
    family="noise",
    set="extra",
    cifar=(0.06, 0.10, 0.12, 0.16, 0.20),
    imagenet=(0.15, 0.20, 0.35, 0.45, 0.60),
    works_on="uint8",
)
def speckle_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Noise in proportion to the value."""
    return draw(x, _table(speckle_matrix, c, x.device), draws)
