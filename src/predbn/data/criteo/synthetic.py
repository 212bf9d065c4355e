"""Synthetic rows with the shape of Criteo's and known click probabilities. They are not Criteo's data.

They are for tests, for benchmarks, and for experiments in which the best possible score must be known. They share
with the real rows: 13 numbers and 26 categories, the number of distinct categories per column, few of them frequent
and most of them rare, dependence between columns, the share of missing values, and a click rate of about a quarter.

Each row has two hidden factors z, on which all its columns depend:

    number j    ⌊exp(m_j + s_j (r_j·z + √(1 − |r_j|²) e))⌋ − 1, but at least 0 (I2: −1)
    category f  of rank ⌊(K_f + 1)^u⌋, u = Φ(r_f·z + √(1 − |r_f|²) e): rank k is about 1/k as frequent as rank 1

The probability of a click depends only on the visible columns:

    p = σ(b + Σ_f a_f g_f + Σ_j c_j n_j + d (g_2 g_8 + g_5 g_11 + g_14 g_17)),

where g_f is the effect of the category, a number in [−√3, √3] for each category (0 if it is missing), and n_j the
standardised logarithm of the number. A row is determined by the seed and its index.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from predbn.common import Draws

from .columns import CATEGORIES, MISSING_NUMBER, MISSING_TOKEN, NUMBERS, WIDTH, hash_words, hex_words

# fmt: off
_CARDINALITIES = np.array([
    1472, 577, 8_200_000, 1_800_000, 305, 23, 11_724, 633, 3, 90_903, 5_918, 6_400_000, 3_207,
    27, 15_501, 4_400_000, 10, 5_485, 2_161, 3, 5_600_000, 17, 15, 273_605, 104, 129_345,
])
"""How many distinct categories each column of the full file has (Ovadia et al. 2019)."""

_MISSING_NUMBER_SHARES = np.array([.45, 0, .21, .22, .03, .22, .04, 0, .04, .45, .04, .76, .22], np.float32)
_MISSING_CATEGORY_SHARES = np.array([
    0, 0, .03, .03, 0, .12, 0, 0, 0, 0, 0, .03, 0, 0, 0, .03, 0, 0, .44, .44, .03, .76, 0, .03, .44, .44,
], np.float32)
_LOG_MEANS = np.array([1.0, 2.0, 2.0, 1.6, 7.0, 3.5, 1.7, 2.0, 3.7, .4, .8, .3, 1.7], np.float32)
_LOG_SCALES = np.array([1.0, 2.0, 1.2, .9, 2.2, 1.6, 1.2, 1.0, 1.4, .5, .7, .7, 1.0], np.float32)
# fmt: on
_MIN_NUMBERS = np.where(np.arange(13) == 1, -1, 0)
_FEATURES = len(NUMBERS) + len(CATEGORIES)
_LOG_CARDINALITIES = np.log(_CARDINALITIES + 1).astype(np.float32)
_ANGLES = 2 * torch.pi * torch.arange(_FEATURES) / 5
_LOADINGS, _NOISE_SCALE = 0.5 * torch.stack((_ANGLES.cos(), _ANGLES.sin())), 0.75**0.5

_EFFECTS = (0.55 / np.sqrt(1 + np.argsort(np.argsort(_CARDINALITIES)))).astype(np.float32)
"""The fewer categories a column has, the larger their effects."""

_NUMBER_EFFECTS = np.where(np.arange(13) % 3 == 0, 0.3, -0.15).astype(np.float32)
_PAIRS, _INTERACTION = ((1, 7), (4, 10), (13, 16)), 0.25
_BIAS = -1.2

_FIRST, _SECOND = np.uint64(0xD1342543DE82EF95), np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Synthetic rows. Categories are 32-bit values, written as eight hexadecimal digits in text.

    `probability` is the click probability that each label was drawn with: no model can be better than that.
    """

    labels: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    categories: npt.NDArray[np.uint32]
    missing: npt.NDArray[np.bool_]
    probability: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def table(self) -> npt.NDArray[np.int32]:
        """The same int32 [n, 40] that preparing their text gives."""
        table = np.empty((len(self), WIDTH), np.int32)
        table[:, 0] = self.labels
        table[:, 1:14] = self.numbers
        tokens = hash_words(hex_words(self.categories)).reshape(self.categories.shape)
        table[:, 14:] = np.where(self.missing, MISSING_TOKEN, tokens)
        return table


def synthetic_rows(count: int, *, seed: int, first: int = 0) -> Synthetic:
    """The rows with the indices `first` to `first + count − 1`."""
    draws = Draws(seed, "synthetic criteo", 0, torch.arange(first, first + count))
    hidden, noise, chance = draws.normal(2), draws.normal(_FEATURES), draws.uniform(_FEATURES + 1).numpy()
    values = hidden[:, :1] * _LOADINGS[0] + hidden[:, 1:] * _LOADINGS[1] + _NOISE_SCALE * noise

    logs = values[:, : len(NUMBERS)].numpy()
    numbers = np.floor(np.exp(np.minimum(_LOG_MEANS + _LOG_SCALES * logs, np.float32(20)))).astype(np.int32) - 1
    np.maximum(numbers, _MIN_NUMBERS, out=numbers)
    missing_numbers = chance[:, : len(NUMBERS)] < _MISSING_NUMBER_SHARES
    numbers[missing_numbers] = MISSING_NUMBER

    shares = torch.special.ndtr(values[:, len(NUMBERS) :]).numpy()
    ranks = np.exp(shares * _LOG_CARDINALITIES).astype(np.uint64)
    missing = chance[:, len(NUMBERS) : -1] < _MISSING_CATEGORY_SHARES
    words = _scramble(ranks, np.arange(1, len(CATEGORIES) + 1, dtype=np.uint64))
    effects = (words.astype(np.uint32) * np.float32(2**-32) - np.float32(0.5)) * np.float32(np.sqrt(12))
    effects[missing] = 0.0

    logits = _BIAS + (effects * _EFFECTS).sum(1, dtype=np.float64)
    logits += (np.where(missing_numbers, np.float32(0), logs) * _NUMBER_EFFECTS).sum(1, dtype=np.float64)
    for first_column, second_column in _PAIRS:
        logits += _INTERACTION * effects[:, first_column] * effects[:, second_column]
    probability = 1 / (1 + np.exp(-logits))
    labels = (chance[:, -1] < probability).astype(np.int32)
    return Synthetic(labels, numbers, (words >> np.uint64(32)).astype(np.uint32), missing, probability)


def _scramble(ranks: npt.NDArray[np.uint64], features: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each (rank, feature)."""
    words: npt.NDArray[np.uint64] = ranks * _FIRST + features * _SECOND
    words ^= words >> np.uint64(32)
    words *= _FIRST
    words ^= words >> np.uint64(29)
    words *= _SECOND
    words ^= words >> np.uint64(32)
    return words
