"""The four noises, which treat every value of an image independently.

An 8-bit image has 256 grey levels before and after. Independent noise is therefore a 256 × 256 matrix P, where P[g, k]
is the probability that level g becomes level k. It includes the clipping to [0, 1] and the truncation to 8 bits: level
k stands for the interval [k, k + 1)/255, level 0 also for everything below and level 255 for everything above.

Walker's alias method draws k from row g with one random word and one look-up. Each row is cut into 256 columns of
equal mass; column k holds level k with probability q[g, k], and one other level, its alias a[g, k], otherwise.

A word has 16 bits, 8 to choose the column and 8 to choose within it, so that all probabilities are multiples of 2⁻¹⁶.
The matrix is first rounded to such multiples, which changes no probability by 2⁻¹⁶ or more; the tables hold the
rounded matrix exactly. Only integers are involved: every device draws the same.
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

from .registry import register

Matrix = npt.NDArray[np.float64]
_LEVELS = np.arange(256.0)
_ROWS = np.arange(256)


def _normal_matrix(deviation: Matrix) -> Matrix:
    """P of g + N(0, deviation[g]), in units of grey levels."""
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
    """Poisson(x·c)/c: every count maps to one level, ⌊255·min(count/c, 1)⌋."""
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


def round_to_units(matrix: Matrix) -> npt.NDArray[np.int64]:
    """A stochastic matrix in units of 2⁻¹⁶, rounded by largest remainders so that each row adds up to 2¹⁶."""
    scaled = matrix * (65536.0 / matrix.sum(axis=1, keepdims=True))
    units: npt.NDArray[np.int64] = np.floor(scaled).astype(np.int64)
    rank = np.argsort(np.argsort(units - scaled, axis=1, kind="stable"), axis=1, kind="stable")
    units += rank < 65536 - units.sum(axis=1, keepdims=True)
    return units


def alias_table(matrix: Matrix) -> Tensor:
    """The rows of a 256 × 256 stochastic matrix as alias tables, int16 [65536].

    Row g, column k is entry (256·g + k) ^ 2¹⁵: the position of a signed 16-bit number with that bit pattern, counted
    from the smallest one. The two bytes of the entry are (threshold − 128, alias).

    All rows are built at the same time. In each row the columns with less than their share come first and those with
    more come last. The first column with more (the donor) fills up one column after another; as soon as it is itself
    below its share, the next donor fills it up. Every step completes one column.
    """
    mass = round_to_units(matrix)
    order = np.argsort(mass >= 256, axis=1, kind="stable")
    small_count = (mass < 256).sum(axis=1)
    receiver, donor = np.zeros(256, dtype=np.int64), small_count.copy()
    threshold = np.full((256, 256), 255)
    alias = np.tile(np.arange(256), (256, 1))
    for _ in range(255):
        current = order[_ROWS, np.minimum(donor, 255)]
        exhausted = mass[_ROWS, current] < 256
        filled = np.where(exhausted, current, order[_ROWS, np.minimum(receiver, 255)])
        source = np.where(exhausted, order[_ROWS, np.minimum(donor + 1, 255)], current)
        active = np.where(exhausted, donor < 255, (receiver < small_count) & (donor < 256))
        row, column, origin = _ROWS[active], filled[active], source[active]
        threshold[row, column] = mass[row, column]
        alias[row, column] = origin
        mass[row, origin] -= 256 - mass[row, column]
        donor += exhausted & active
        receiver += ~exhausted & active
    entries = (((threshold - 128) << 8) | alias).astype(np.int16).reshape(-1)
    return torch.from_numpy(np.roll(entries, 1 << 15))


def sample_levels(x: Tensor, table: Tensor, draws: Draws) -> Tensor:
    """Replace each grey level g of the uint8 images x by one drawn from row g of the alias table.

    The low 8 bits of a 16-bit word choose the column k, the upper 8 are compared with its threshold. The comparison is
    a subtraction whose sign bit is spread to a mask, and the choice between k and its alias a is

        k' = a ^ ((a ^ k) & mask).
    """
    word = draws.bits16(*x.shape[1:])
    position = x.to(torch.int16).bitwise_left_shift_(8).bitwise_or_(word & 0xFF)
    entry = table.index_select(0, position.view(-1).to(torch.int32).add_(1 << 15)).view_as(word)
    mask = (word >> 8).sub_(entry >> 8).bitwise_right_shift_(15)
    return word.bitwise_xor_(entry).bitwise_and_(mask).bitwise_xor_(entry).to(torch.uint8)


@lru_cache(maxsize=64)
def _table(matrix: Callable[[float], Matrix], c: float, device: torch.device) -> Tensor:
    return alias_table(matrix(c)).to(device)


@register(
    "gaussian_noise",
    family="noise",
    cifar=(0.04, 0.06, 0.08, 0.09, 0.10),
    imagenet=(0.08, 0.12, 0.18, 0.26, 0.38),
    works_on="uint8",
)
def gaussian_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Normal noise with the same deviation everywhere, like that of a sensor in low light."""
    return sample_levels(x, _table(gaussian_matrix, c, x.device), draws)


@register(
    "shot_noise",
    family="noise",
    cifar=(500, 250, 100, 75, 50),
    imagenet=(60, 25, 12, 5, 3),
    works_on="uint8",
)
def shot_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Photon counting noise: a white value has c photons on average."""
    return sample_levels(x, _table(shot_matrix, c, x.device), draws)


@register(
    "impulse_noise",
    family="noise",
    cifar=(0.01, 0.02, 0.03, 0.05, 0.07),
    imagenet=(0.03, 0.06, 0.09, 0.17, 0.27),
    works_on="uint8",
)
def impulse_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Salt and pepper, drawn for each value, so that it hits single channels of a pixel."""
    return sample_levels(x, _table(impulse_matrix, c, x.device), draws)


@register(
    "speckle_noise",
    family="noise",
    cifar=(0.06, 0.10, 0.12, 0.16, 0.20),
    imagenet=(0.15, 0.20, 0.35, 0.45, 0.60),
    works_on="uint8",
)
def speckle_noise(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Noise that is proportional to the value."""
    return sample_levels(x, _table(speckle_matrix, c, x.device), draws)
