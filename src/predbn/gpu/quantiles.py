"""Quantiles of the rows of two tiles.

Few values are sorted. Of many values only a few are needed, and a radix select finds them: the k-th smallest value is
the largest number that has at most k values below it. Its bits are found one after the other, each by counting, until
a single value begins with the bits that are known. That takes about twenty sums over a row, and at most 32; sorting n
values takes log²(n)/2 exchanges between threads.

A step has to wait for the one before, so that it takes as long as its sum. Therefore all six quantiles (three of each
tile) are found at the same time, and the three counts of a tile are one sum of integers with a bit field for each.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

MAX_SORTED = 32
"""Rows of at most so many values are sorted."""


@triton.jit
def quantiles(
    first, second, low, centre, high, last,
    COLUMNS: tl.constexpr, EXAMPLES: tl.constexpr, MAX_SORTED: tl.constexpr,
):  # fmt: skip
    """Three quantiles of each row of two tiles [COLUMNS, EXAMPLES], interpolated as if rows ended after `last`.

    Values that do not count have to be infinite.
    """
    if EXAMPLES <= MAX_SORTED:
        index = tl.arange(0, EXAMPLES)
        ordered = tl.sort(first, 1)
        low_1 = _in_sorted(ordered, low, last, index)
        centre_1 = _in_sorted(ordered, centre, last, index)
        high_1 = _in_sorted(ordered, high, last, index)
        ordered = tl.sort(second, 1)
        low_2 = _in_sorted(ordered, low, last, index)
        centre_2 = _in_sorted(ordered, centre, last, index)
        high_2 = _in_sorted(ordered, high, last, index)
    else:
        # Bits of a count, which is at most EXAMPLES: three times 10 fit into an int32.
        FIELD: tl.constexpr = 10 if EXAMPLES <= 512 else 20
        keys_1 = _keys(first)
        keys_2 = _keys(second)
        zero = tl.zeros([COLUMNS], tl.uint32)
        low_1, centre_1, high_1 = zero, zero, zero
        low_2, centre_2, high_2 = zero, zero, zero
        # How many keys are below what is known of a key, and how many are below the next number with as many bits.
        none = tl.zeros([COLUMNS], tl.int32)
        all_keys = none + EXAMPLES
        start_1, start_2, start_3, start_4, start_5, start_6 = none, none, none, none, none, none
        stop_1, stop_2, stop_3, stop_4, stop_5, stop_6 = all_keys, all_keys, all_keys, all_keys, all_keys, all_keys
        bit = tl.full([COLUMNS], 2147483648, tl.uint32)
        low_rank = tl.floor(last * low).to(tl.int32)
        centre_rank = tl.floor(last * centre).to(tl.int32)
        high_rank = tl.floor(last * high).to(tl.int32)
        candidates = tl.max(all_keys, 0)
        steps = tl.max(none, 0) + 32
        while (candidates > 1) & (steps > 0):
            below = _counts_below(keys_1, low_1 | bit, centre_1 | bit, high_1 | bit, FIELD)
            low_1, start_1, stop_1 = _with_bit(low_1, start_1, stop_1, bit, below, 0, low_rank, FIELD)
            centre_1, start_2, stop_2 = _with_bit(centre_1, start_2, stop_2, bit, below, 1, centre_rank, FIELD)
            high_1, start_3, stop_3 = _with_bit(high_1, start_3, stop_3, bit, below, 2, high_rank, FIELD)
            below = _counts_below(keys_2, low_2 | bit, centre_2 | bit, high_2 | bit, FIELD)
            low_2, start_4, stop_4 = _with_bit(low_2, start_4, stop_4, bit, below, 0, low_rank, FIELD)
            centre_2, start_5, stop_5 = _with_bit(centre_2, start_5, stop_5, bit, below, 1, centre_rank, FIELD)
            high_2, start_6, stop_6 = _with_bit(high_2, start_6, stop_6, bit, below, 2, high_rank, FIELD)
            width_of_first = tl.maximum(tl.maximum(stop_1 - start_1, stop_2 - start_2), stop_3 - start_3)
            width_of_second = tl.maximum(tl.maximum(stop_4 - start_4, stop_5 - start_5), stop_6 - start_6)
            candidates = tl.max(tl.maximum(width_of_first, width_of_second), 0)
            steps -= 1
            bit = bit >> 1
        low_1 = _interpolated(keys_1, low_1, low, last)
        centre_1 = _interpolated(keys_1, centre_1, centre, last)
        high_1 = _interpolated(keys_1, high_1, high, last)
        low_2 = _interpolated(keys_2, low_2, low, last)
        centre_2 = _interpolated(keys_2, centre_2, centre, last)
        high_2 = _interpolated(keys_2, high_2, high, last)
    return low_1, centre_1, high_1, low_2, centre_2, high_2


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
    """Unsigned integers in the order of the values: positive ones get the highest bit, negative ones are inverted."""
    bits = values.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def _value(key):
    """The value that has this key."""
    bits = key.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31 ^ -1) | -2147483648)).to(tl.float32, bitcast=True)


@triton.jit
def _counts_below(keys, low, centre, high, FIELD: tl.constexpr):
    """How many keys of a row are below each of three numbers: three bit fields of one integer."""
    INTEGER: tl.constexpr = tl.int32 if FIELD == 10 else tl.int64
    is_below_low = (keys < low[:, None]).to(INTEGER)
    is_below_centre = (keys < centre[:, None]).to(INTEGER)
    is_below_high = (keys < high[:, None]).to(INTEGER)
    return tl.sum(is_below_low + (is_below_centre << FIELD) + (is_below_high << (2 * FIELD)), 1)


@triton.jit
def _with_bit(key, start, stop, bit, counts, NUMBER: tl.constexpr, rank, FIELD: tl.constexpr):
    """What is known of a key, with this bit if at most as many keys as its rank are below that; and the two counts."""
    count = ((counts >> (NUMBER * FIELD)) & ((1 << FIELD) - 1)).to(tl.int32)
    has_bit = count <= rank
    return tl.where(has_bit, key | bit, key), tl.where(has_bit, count, start), tl.where(has_bit, stop, count)


@triton.jit
def _interpolated(keys, begin, quantile, last):
    """The quantile, from the first bits of the key of the value at or below its position, or from all of them.

    A warp adds up integers, and finds their minimum, in a single step; floating-point numbers take five.
    """
    position = last * quantile
    lower = tl.floor(position)
    key = tl.min(tl.where(keys >= begin[:, None], keys, 4294967295), 1)
    is_above = keys > key[:, None]
    up_to = keys.shape[1] - tl.sum(is_above.to(tl.int32), 1)
    next_key = tl.min(tl.where(is_above, keys, 4294967295), 1)
    below, next_one = _value(key), _value(tl.where(next_key == 4294967295, key, next_key))
    above = tl.where(up_to > tl.minimum(lower + 1, last), below, next_one)
    return below + (position - lower) * (above - below)
