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
from .source import PAD
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

    `padded` holds the text, which ends with a newline, between PAD bytes of anything before and after.
    """
    text = padded[PAD:-PAD]
    newlines = text == _NEWLINE
    flat = np.flatnonzero(newlines | (text == delimiter))
    rows, left = divmod(len(flat), WIDTH)
    if left or np.count_nonzero(newlines) != rows or not newlines[flat[WIDTH - 1 :: WIDTH]].all():
        return None
    ends = flat.reshape(rows, WIDTH)
    lengths = np.diff(flat, prepend=-1).reshape(rows, WIDTH) - 1
    words = np.ndarray((len(padded) - 7,), np.uint64, padded, strides=(1,))

    table = np.empty((rows, WIDTH), np.int32)
    split = 1 + len(NUMBERS)
    fine = (
        _labels(text, ends[:, 0], lengths[:, 0], table[:, 0])
        and _numbers(words, ends[:, 1:split], lengths[:, 1:split], table[:, 1:split])
        and _categories(words, ends[:, split - 1 : -1], lengths[:, split:], table[:, split:])
    )
    return table if fine else None


def _labels(text: npt.NDArray[np.uint8], ends: Places, lengths: Places, labels: Table) -> bool:
    np.subtract(text[ends - 1], _ZERO, out=labels, dtype=np.int32)
    return bool((lengths == 1).all() and ((labels == 0) | (labels == 1)).all())


def _numbers(words: Words, ends: Places, lengths: Places, numbers: Table) -> bool:
    """Numbers of at most eight characters, the word of each being the eight bytes before its end."""
    if lengths.max() > 8:
        return False
    found = words[ends]
    digits = (found ^ _ZEROS) & _KEPT[lengths]
    signed = np.nonzero(_not_digits(digits))
    if len(signed[0]):
        characters, first = found[signed], np.uint64(64) - np.uint64(8) * lengths[signed].astype(np.uint64)
        if (characters >> first & np.uint64(255) != _MINUS).any() or (lengths[signed] < 2).any():
            return False
        digits[signed] = (characters ^ _ZEROS) & _KEPT[lengths[signed] - 1]
        if _not_digits(digits[signed]).any():
            return False
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & _PAIRS
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & _FOURS
    values = (fours * np.uint64(10_000) + (fours >> np.uint64(32))).astype(np.int32)
    values[signed] *= -1
    numbers[:] = np.where(lengths == 0, np.int32(MISSING_NUMBER), values)
    return True


def _not_digits(digits: Words) -> Words:
    """Not 0 where a byte of the word is above nine: adding 0x76 to it, or it alone, sets its top bit."""
    flags: Words = ((digits + _ABOVE_NINE) | digits) & _TOP_BITS
    return flags


def _categories(words: Words, before: Places, lengths: Places, tokens: Table) -> bool:
    """Categories of eight bytes, the word of each beginning after the separator before it."""
    missing = lengths == 0
    if not (missing | (lengths == 8)).all():
        return False
    tokens[:] = np.where(missing, np.int32(MISSING_TOKEN), hash_words(words[PAD + 1 :][before]))
    return True
