"""The columns of Criteo's display advertising data, and how a row of them is stored as 40 whole numbers.

A row has a label (1 for a click), 13 numbers I1 … I13 and 26 categories C1 … C26. It is stored as int32 [40] in that
order: the numbers unchanged, the categories as 32-bit tokens. Nothing is scaled, clipped or counted, because that
belongs to the network, so one preparation serves every network.

Criteo's categories are eight hexadecimal digits. Read as a little-endian 64-bit word w, the token is

    t = ⌊(w · 0x9E3779B97F4A7C15 mod 2⁶⁴) / 2³²⌋

This is multiply-shift hashing: the upper bits depend on every digit, so ⌊t · K / 2³²⌋ spreads the categories evenly
over K buckets for any K, and it costs two operations per value. The token of a text of another length is the first
four bytes of its BLAKE2b digest.
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
    """The tokens of texts of eight bytes, each text given as the little-endian word of its bytes."""
    tokens: npt.NDArray[np.int32] = (words * _MULTIPLIER).view(np.int32)[1::2]
    return tokens


def token_of(text: bytes) -> int:
    """The token of a text of any length; the empty text is a missing category."""
    if not text:
        return MISSING_TOKEN
    if len(text) == CATEGORY_LENGTH:
        return int(hash_words(np.frombuffer(text, "<u8"))[0])
    return int(np.frombuffer(hashlib.blake2b(text, digest_size=4).digest(), "<i4")[0])


def hex_words(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """The eight lower-case hexadecimal digits of each value, as the little-endian word of their bytes.

    All digits are computed at once: the nibbles n are spread to one per byte, most significant first, and become
    characters by n + '0' + 39·[n > 9].
    """
    x = values.byteswap().astype(np.uint64)
    x = (x | (x << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    x = (x | (x << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    low_nibbles = np.uint64(0x000F000F000F000F)
    x = ((x >> np.uint64(4)) & low_nibbles) | ((x & low_nibbles) << np.uint64(8))
    letters = ((x + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    characters: npt.NDArray[np.uint64] = x + np.uint64(0x3030303030303030) + letters * np.uint64(39)
    return characters
