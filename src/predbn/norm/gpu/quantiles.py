"""Quantiles of the rows of a tile.

Few values are sorted. Of many values only six are needed, so these are looked for: the k-th smallest value is the
largest number that has at most k values below it, and its 32 bits are found one after the other, each by counting. That
takes 32 sums over a row, where sorting n values takes log²(n)/2 exchanges between threads.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

MOST_SORTED = 32
"""So many values in a row are sorted."""


@triton.jit
def quantiles(
    values, low, centre, high, last, COLUMNS: tl.constexpr, EXAMPLES: tl.constexpr, MOST_SORTED: tl.constexpr
):  # fmt: skip
    """Three quantiles of each row of [COLUMNS, EXAMPLES], interpolated as if the rows ended after position `last`.

    Values that do not count have to be infinite.
    """
    if EXAMPLES <= MOST_SORTED:
        index = tl.arange(0, EXAMPLES)
        ordered = tl.sort(values, 1)
        low_value = _in_sorted(ordered, low, last, index)
        centre_value = _in_sorted(ordered, centre, last, index)
        high_value = _in_sorted(ordered, high, last, index)
    else:
        keys = _keys(values)
        low_key = tl.zeros([COLUMNS], tl.uint32)
        centre_key = tl.zeros([COLUMNS], tl.uint32)
        high_key = tl.zeros([COLUMNS], tl.uint32)
        bit = tl.full([COLUMNS], 2147483648, tl.uint32)
        for _ in range(32):
            low_key = _with_bit(keys, low_key, bit, tl.floor(last * low))
            centre_key = _with_bit(keys, centre_key, bit, tl.floor(last * centre))
            high_key = _with_bit(keys, high_key, bit, tl.floor(last * high))
            bit = bit >> 1
        low_value = _interpolated(values, low_key, low, last)
        centre_value = _interpolated(values, centre_key, centre, last)
        high_value = _interpolated(values, high_key, high, last)
    return low_value, centre_value, high_value


@triton.jit
def _in_sorted(values, quantile, last, index):
    position = last * quantile
    lower = tl.floor(position)
    below = _at(values, lower.to(tl.int32), index)
    above = _at(values, tl.minimum(lower + 1, last).to(tl.int32), index)
    return below + (position - lower) * (above - below)


@triton.jit
def _at(values, position, index):
    """The value at a position of each sorted row."""
    return tl.sum(tl.where(index[None, :] == position, values, 0.0), 1)


@triton.jit
def _keys(values):
    """Whole numbers from 0 up in the order of the values: positive ones get the highest bit, negative ones are
    inverted."""
    bits = values.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def _value(key):
    """The value that has this key."""
    bits = key.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31 ^ -1) | -2147483648)).to(tl.float32, bitcast=True)


@triton.jit
def _with_bit(keys, found, bit, rank):
    """`found` with this bit, if at most `rank` keys of the row are below that."""
    candidate = found | bit
    below = tl.sum((keys < candidate[:, None]).to(tl.float32), 1)
    return tl.where(below <= rank, candidate, found)


@triton.jit
def _interpolated(values, key, quantile, last):
    """The quantile, from the key of the value at or below its position."""
    position = last * quantile
    lower = tl.floor(position)
    below = _value(key)
    up_to = tl.sum((values <= below[:, None]).to(tl.float32), 1)
    next_one = tl.min(tl.where(values > below[:, None], values, float("inf")), 1)
    above = tl.where(up_to > tl.minimum(lower + 1, last), below, next_one)
    return below + (position - lower) * (above - below)
