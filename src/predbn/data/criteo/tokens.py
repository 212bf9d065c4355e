"""Categories as 32-bit tokens.

Criteo's categories are eight hexadecimal digits. Read as a 64-bit word w, first digit lowest, the token is

    t = ⌊(w · 0x9E3779B97F4A7C15 mod 2⁶⁴) / 2³²⌋

multiply-shift hashing: the upper bits depend on every digit, so ⌊t · K / 2³²⌋ spreads categories over K buckets for
any K, and it costs two operations a value. Text of another length takes the first four bytes of its BLAKE2b digest.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from .columns import MISSING_TOKEN

__all__ = ["hash_words", "hex_words", "token_of"]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LENGTH = 8


def hash_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The tokens of texts of eight bytes, each given as the little-endian word of its bytes."""
    tokens: npt.NDArray[np.int32] = (words * _MULTIPLIER).view(np.int32)[1::2]
    return tokens


def token_of(text: bytes) -> int:
    """The token of any text; the missing one of the empty text."""
    if not text:
        return MISSING_TOKEN
    if len(text) == _LENGTH:
        return int(hash_words(np.frombuffer(text, "<u8"))[0])
    return int(np.frombuffer(hashlib.blake2b(text, digest_size=4).digest(), "<i4")[0])


def hex_words(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """The eight lower-case hexadecimal digits of each value as the word of their bytes, all digits at once.

    The nibbles are spread to one a byte, most significant first, and become digits by n + '0' + 39·[n > 9].
    """
    x = values.byteswap().astype(np.uint64)
    x = (x | (x << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    x = (x | (x << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    nibbles = np.uint64(0x000F000F000F000F)
    x = ((x >> np.uint64(4)) & nibbles) | ((x & nibbles) << np.uint64(8))
    letters = ((x + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    digits: npt.NDArray[np.uint64] = x + np.uint64(0x3030303030303030) + letters * np.uint64(39)
    return digits
