"""The columns of Criteo's display advertising data, and how a row is stored as int32 [40].

A row has a label (1 for a click), 13 numbers I1 … I13 and 26 categories C1 … C26, stored in that order: the numbers
unchanged, the categories as 32-bit tokens. Nothing is scaled, clipped or counted, because that belongs to the network,
so one preparation serves every network.

Criteo's categories are eight hexadecimal digits. Read as a little-endian 64-bit word w, the token is

    t = ⌊(w · 0x9E3779B97F4A7C15 mod 2⁶⁴) / 2³²⌋

This is multiply-shift hashing: the upper bits depend on every digit, so ⌊t · K / 2³²⌋ spreads the categories evenly
over K buckets for any K. The token of a string of another length is the first four bytes of its BLAKE2b digest.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

LABEL = "label"
NUMBERS = tuple(f"I{number}" for number in range(1, 14))
CATEGORIES = tuple(f"C{number}" for number in range(1, 27))
COLUMNS = (LABEL, *NUMBERS, *CATEGORIES)
WIDTH = len(COLUMNS)
CLASSES = ("no click", "click")

MISSING_NUMBER = int(np.iinfo(np.int32).min)
"""The stored value of a missing number."""

MISSING_TOKEN = 0
"""The token of a missing category; one category in 2³² has the same token."""

CATEGORY_LENGTH = 8
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def hash_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The tokens of strings of eight bytes, each given as the little-endian word of its bytes."""
    tokens: npt.NDArray[np.int32] = (words * _MULTIPLIER).view(np.int32)[1::2]
    return tokens


def token_of(category: bytes) -> int:
    """The token of a category of any length; the empty one is missing."""
    if not category:
        return MISSING_TOKEN
    if len(category) == CATEGORY_LENGTH:
        return int(hash_words(np.frombuffer(category, "<u8"))[0])
    return int(np.frombuffer(hashlib.blake2b(category, digest_size=4).digest(), "<i4")[0])


def hex_words(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """The eight lower-case hexadecimal digits of each value, as the little-endian word of their bytes."""
    return np.frombuffer(values.astype(">u4").tobytes().hex().encode(), "<u8")
