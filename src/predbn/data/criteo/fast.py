"""Regular lines to a table of int32, all values of a column kind at once.

A piece of text is scanned for its separators once; then every category is one 64-bit word at a known place, and so is
every number, right-aligned: its digits d_0 … d_7 (zeros in front) sit in the eight bytes of a word, and

    v = Σ_i d_i · 10^(7−i)

is three multiplications, which add neighbours first in pairs, then in fours, then in eights. Lines that are not
regular (another number of columns, a category that has not eight bytes, a number of more than eight characters, quotes)
are left to `careful`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .columns import MISSING_NUMBER, MISSING_TOKEN, NUMBERS, WIDTH
from .pieces import PAD
from .tokens import hash_words

__all__ = ["parse_regular"]

Table = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

_NEWLINE, _MINUS, _ZERO = 10, np.uint64(45), 48
_KEPT = np.array([(2 ** (8 * n) - 1) << (64 - 8 * n) for n in range(9)], np.uint64)
"""By length: the upper bytes of a word, where the characters of a right-aligned number are."""

_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE, _TOP_BITS = np.uint64(0x7676767676767676), np.uint64(0x8080808080808080)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


def parse_regular(padded: npt.NDArray[np.uint8], delimiter: int) -> Table | None:
    """The rows of whole lines in the layout of `columns`, or None where some line is not regular.

    `padded` holds the text between PAD bytes of anything before and after.
    """
    text = padded[PAD:-PAD]
    if not len(text) or text[-1] != _NEWLINE:
        return None
    newlines = text == _NEWLINE
    flat = np.flatnonzero(newlines | (text == delimiter))
    rows, left = divmod(len(flat), WIDTH)
    if left or np.count_nonzero(newlines) != rows or not newlines[flat[WIDTH - 1 :: WIDTH]].all():
        return None
    lengths = np.empty_like(flat)
    lengths[0] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=lengths[1:])
    lengths[1:] -= 1
    words = np.ndarray((len(padded) - 7,), np.uint64, padded, strides=(1,))

    table = np.empty((rows, WIDTH), np.int32)
    split = 1 + len(NUMBERS)
    ends, sizes = flat.reshape(rows, WIDTH), lengths.reshape(rows, WIDTH)
    for place, found in (
        (slice(0, 1), _labels(text, ends[:, 0], sizes[:, 0])),
        (slice(1, split), _numbers(words, ends[:, 1:split].ravel(), sizes[:, 1:split].ravel())),
        (slice(split, WIDTH), _categories(words, ends[:, split - 1 : -1].ravel(), sizes[:, split:].ravel())),
    ):
        if found is None:
            return None
        table[:, place] = found.reshape(rows, -1)
    return table


def _labels(text: npt.NDArray[np.uint8], ends: Places, lengths: Places) -> Table | None:
    labels = text[ends - 1].astype(np.int32) - _ZERO
    return labels if (lengths == 1).all() and ((labels == 0) | (labels == 1)).all() else None


def _numbers(words: Words, ends: Places, lengths: Places) -> Table | None:
    """Numbers of at most eight characters, the word of each being the eight bytes before its end."""
    if lengths.max() > 8:
        return None
    found = words[ends]
    digits = found ^ _ZEROS
    digits &= _KEPT[lengths]
    signed = np.flatnonzero(_not_digits(digits))
    if len(signed):
        characters, own = found[signed], lengths[signed]
        first = characters >> (64 - 8 * own).astype(np.uint64) & np.uint64(255)
        digits[signed] = (characters ^ _ZEROS) & _KEPT[own - 1]
        if (first != _MINUS).any() or (own < 2).any() or _not_digits(digits[signed]).any():
            return None
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & _PAIRS
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & _FOURS
    values: Table = (fours * np.uint64(10_000) + (fours >> np.uint64(32))).astype(np.int32)
    values[signed] *= -1
    values[lengths == 0] = MISSING_NUMBER
    return values


def _not_digits(digits: Words) -> Words:
    """Not 0 where a byte of the word is above nine: adding 0x76 to it, or it alone, sets its top bit."""
    flags: Words = ((digits + _ABOVE_NINE) | digits) & _TOP_BITS
    return flags


def _categories(words: Words, before: Places, lengths: Places) -> Table | None:
    """Categories of eight bytes, the word of each beginning after the separator before it."""
    missing = lengths == 0
    if not (missing | (lengths == 8)).all():
        return None
    tokens = hash_words(words[PAD + 1 :][before])
    tokens[missing] = MISSING_TOKEN
    return tokens
