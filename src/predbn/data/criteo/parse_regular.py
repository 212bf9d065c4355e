"""A fast parser for regular lines, several times as fast as pyarrow.

The text is scanned once for its separators. Then every category is a 64-bit word at a known position, and so is every
number: the eight bytes that end with its last digit, of which those in front of the number are cleared. With the digits
d_0 … d_7 in the bytes of a word, the value

    v = Σ_i d_i · 10^(7−i)

takes three multiplications, which combine neighbouring digits to pairs, pairs to fours and fours to eights.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .columns import CATEGORY_LENGTH, MISSING_NUMBER, MISSING_TOKEN, NUMBERS, WIDTH, hash_words
from .source import PADDING, Piece

Table = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_NEWLINE, _ZERO, _MINUS = ord("\n"), ord("0"), np.uint64(ord("-"))

_LAST_BYTES = np.array([(2 ** (8 * n) - 1) << (64 - 8 * n) for n in range(9)], np.uint64)
"""Masks for the last n bytes of a little-endian word, by n."""

_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE, _TOP_BITS = np.uint64(0x7676767676767676), np.uint64(0x8080808080808080)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


def parse_regular(piece: Piece, delimiter: str) -> Table | None:
    """The rows of whole lines, int32 [n, 40], or None if a line is not regular.

    A regular line has 40 columns in the order of `COLUMNS`, a label 0 or 1, numbers of at most eight characters,
    categories of eight bytes, and ends with a newline.
    """
    padded = np.frombuffer(piece.buffer, np.uint8, piece.end + PADDING)
    characters = padded[PADDING:-PADDING]
    is_newline = characters == _NEWLINE
    ends = np.flatnonzero(is_newline | (characters == ord(delimiter)))
    rows, rest = divmod(len(ends), WIDTH)
    if rest or not rows or np.count_nonzero(is_newline) != rows or not is_newline[ends[WIDTH - 1 :: WIDTH]].all():
        return None
    if ends[-1] != len(characters) - 1:
        return None
    # In place, and the table before its columns: further large temporary arrays would double the time, because malloc
    # returns their memory to the system each time.
    lengths = np.empty_like(ends)
    lengths[0] = ends[0]
    np.subtract(ends[1:], ends[:-1], out=lengths[1:])
    lengths[1:] -= 1
    row_ends, row_lengths = ends.reshape(rows, WIDTH), lengths.reshape(rows, WIDTH)
    # words_before[i] are the eight bytes before position i of the text, words_before[i + 9] those after it.
    words_before = np.ndarray((len(padded) - 7,), np.uint64, padded, strides=(1,))

    table = np.empty((rows, WIDTH), np.int32)
    first_category = 1 + len(NUMBERS)
    columns = (
        _labels(characters, row_ends[:, 0], row_lengths[:, 0]),
        _numbers(words_before, row_ends[:, 1:first_category].ravel(), row_lengths[:, 1:first_category].ravel()),
        _categories(
            words_before, row_ends[:, first_category - 1 : -1].ravel(), row_lengths[:, first_category:].ravel()
        ),
    )
    for part, values in zip(np.split(table, [1, first_category], axis=1), columns, strict=True):
        if values is None:
            return None
        part[:] = values.reshape(rows, -1)
    return table


def _labels(characters: npt.NDArray[np.uint8], ends: Positions, lengths: Positions) -> Table | None:
    labels = characters[ends - 1].astype(np.int32) - _ZERO
    return labels if (lengths == 1).all() and ((labels == 0) | (labels == 1)).all() else None


def _numbers(words_before: Words, ends: Positions, lengths: Positions) -> Table | None:
    if lengths.max() > 8:
        return None
    words = words_before[ends]
    digits = words ^ _ZEROS
    digits &= _LAST_BYTES[lengths]
    # Numbers with a byte that is not a digit must have a minus sign as their first character, and digits after it.
    signed = np.flatnonzero(_non_digits(digits))
    if len(signed):
        signed_words, signed_lengths = words[signed], lengths[signed]
        first = signed_words >> (64 - 8 * signed_lengths).astype(np.uint64) & np.uint64(255)
        digits[signed] = (signed_words ^ _ZEROS) & _LAST_BYTES[signed_lengths - 1]
        if (first != _MINUS).any() or (signed_lengths < 2).any() or _non_digits(digits[signed]).any():
            return None
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & _PAIRS
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & _FOURS
    values: Table = (fours * np.uint64(10_000) + (fours >> np.uint64(32))).astype(np.int32)
    values[signed] *= -1
    values[lengths == 0] = MISSING_NUMBER
    return values


def _non_digits(digits: Words) -> Words:
    """Not 0 if a byte of the word is above nine: then adding 0x76 sets its top bit, or it is set already."""
    flags: Words = ((digits + _ABOVE_NINE) | digits) & _TOP_BITS
    return flags


def _categories(words_before: Words, separators: Positions, lengths: Positions) -> Table | None:
    """The tokens of the categories that begin after these separators."""
    is_missing = lengths == 0
    if not (is_missing | (lengths == CATEGORY_LENGTH)).all():
        return None
    tokens = hash_words(words_before[PADDING + 1 :][separators])
    tokens[is_missing] = MISSING_TOKEN
    return tokens
