"""`auto_stream` for the streams of a batch: one program has all channels of one stream.

What a layer remembers is read and written where it is, in the rows of the streams (`stream_table.py`). The equations
are those of `strategies/auto_stream.py`, `strategies/stream_past.py` and `strategies/auto.py`; sums over the channels
need no other program.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..strategies.auto import LIMITS
from ..strategies.stream_past import HEAVY_TAILS, MOST_EVIDENCE, MOST_FREEDOM
from .launch import kernel, power_of_2
from .mixture import FEWEST_CHANNELS, clamp, mixed, numbers_of_layer
from .rules import Past
from .statistics import without_classes


@triton.jit
def _combine(mean, var, total, squares, new_mean, new_var, size, h, eps, momentum, freedom, tails, evidence, most):
    """Past and new batch together: mean, variance, Σ w and Σ w²."""
    delta = new_mean - mean
    growth = new_var - var
    delta2 = delta * delta
    share = size / (total + size)
    both = var + share * growth + share * (1 - share) * delta2 + eps
    chance = 1 / size + squares / (total * total)
    z2 = delta2 / both
    r = growth / both + z2
    q = clamp(tl.sum(h * (z2 + 0.5 * r * r), 0) / chance, 1.0, most)
    ratio = tl.exp(tl.minimum(freedom / (1 + tails * chance) / 2 * (q - 1 - tl.log(q)), evidence))
    kept = (1 - momentum) / (1 - momentum + momentum * ratio)
    total = kept * total
    squares = kept * kept * squares
    share = size / (total + size)
    var = var + share * growth + share * (1 - share) * delta2
    return mean + share * delta, var, total + size, squares + size


@kernel()
def _follow(
    states, offsets, results, places, tables, sizes, asked, clean_mean, clean_var, weight, source_mean, source_var,
    groups, channels, stride, result_stride, eps, momentum, between, of_clean, network, skewed, doubtful, o, freedom,
    tails, evidence, least, most,
    CHANNELS: tl.constexpr, HAS_PAST: tl.constexpr, HAS_LAST: tl.constexpr, HAS_SHARES: tl.constexpr,
    EXPECTED: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    group = tl.load(asked + tl.program_id(0))
    channel = tl.arange(0, CHANNELS)
    valid = channel < channels
    row = states + tl.program_id(0).to(tl.int64) * stride
    table = tables + group * channels + channel
    size_of_table = groups * channels
    m = tl.load(clean_mean + channel, mask=valid, other=0.0)
    v = tl.load(clean_var + channel, mask=valid, other=1.0)
    h = tl.load(weight + channel, mask=valid, other=0.0)
    batch_mean = tl.load(table, mask=valid, other=0.0)
    batch_var = tl.load(table + size_of_table, mask=valid, other=1.0)
    n = tl.load(sizes + group)
    m_s = tl.load(source_mean + channel, mask=valid, other=0.0).to(tl.float32)
    v_s = tl.load(source_var + channel, mask=valid, other=1.0).to(tl.float32)
    # Where the results go is read first as well: after the barrier below, every store would have to wait for it.
    result = results + tl.program_id(0).to(tl.int64) * result_stride
    to_mean = result + tl.load(places + 6) + channel
    to_var = result + tl.load(places + 7) + channel
    to_seen_mean = result + tl.load(places) + channel
    to_seen_var = result + tl.load(places + 1) + channel
    to_counts = result + tl.load(places + 2)
    to_new_mean = result + tl.load(places + 3) + channel
    to_new_var = result + tl.load(places + 4) + channel
    to_new_size = result + tl.load(places + 5)
    predicted_error = 0.0
    expected_error = 0.0
    doubt = 0.0
    if EXPECTED:
        errors = row + tl.load(offsets + 10)
        predicted_error = tl.load(errors)
        expected_error = tl.load(errors + 1)
        doubt = tl.load(errors + 2)
    if HAS_PAST:
        past_mean = tl.load(row + tl.load(offsets) + channel, mask=valid, other=0.0)
        past_var = tl.load(row + tl.load(offsets + 1) + channel, mask=valid, other=1.0)
        counts = row + tl.load(offsets + 2)
        total = tl.load(counts)
        squares = tl.load(counts + 1)
    if HAS_LAST:
        last_mean = tl.load(row + tl.load(offsets + 3) + channel, mask=valid, other=0.0)
        last_var = tl.load(row + tl.load(offsets + 4) + channel, mask=valid, other=1.0)
        last_n = tl.load(row + tl.load(offsets + 5))
        if HAS_SHARES:
            error = predicted_error
        else:
            error = tl.maximum(expected_error, 1 / last_n)
        if HAS_SHARES or EXPECTED:
            class_mean = tl.load(table + 4 * size_of_table, mask=valid, other=0.0)
            class_var = tl.load(table + 5 * size_of_table, mask=valid, other=1.0)
            last_mean, last_var = without_classes(last_mean, last_var, m, v, class_mean, class_var, eps)
        last_size = 1 / ((1 - between) / last_n + between * error)
        if HAS_PAST:
            past_mean, past_var, total, squares = _combine(
                past_mean, past_var, total, squares, last_mean, last_var, last_size, h, eps, momentum, freedom, tails,
                evidence, most,
            )  # fmt: skip
        else:
            past_mean = last_mean
            past_var = last_var
            total = last_size
            squares = last_size
    mean = batch_mean
    var = batch_var
    size = n
    if CLASSES:
        error = tl.maximum(expected_error, 1 / n)
        if not HAS_LAST and not EXPECTED:
            error = 1.0
        if EXPECTED:
            class_mean = tl.load(table + 2 * size_of_table, mask=valid, other=0.0)
            class_var = tl.load(table + 3 * size_of_table, mask=valid, other=1.0)
            mean, var = without_classes(mean, var, m, v, class_mean, class_var, eps)
        size = 1 / ((1 - between) / n + between * error)
    all_total = size
    all_squares = size
    if HAS_PAST or HAS_LAST:
        mean, var, all_total, all_squares = _combine(
            past_mean, past_var, total, squares, mean, var, size, h, eps, momentum, freedom, tails, evidence, most
        )
    all_size = all_total * all_total / all_squares
    chance = 1 / all_size + of_clean + doubtful * doubt
    depth = network / (all_size + 1)
    of_classes = skewed * (1 - 1 / all_size)
    delta = mean - m
    z2 = delta * delta / (v + eps)
    r = z2 + (var + eps) / (v + eps)
    a2, kept, f = numbers_of_layer(h, z2, r, chance, depth, of_classes, o, least, most)
    used_mean, used_var = mixed(m, v, m_s, v_s, delta, z2, r, a2, kept, f, eps)
    tl.debug_barrier()  # results may be where the states are
    tl.store(table + 2 * size_of_table, used_mean, mask=valid)
    tl.store(table + 3 * size_of_table, used_var, mask=valid)
    tl.store(to_mean, used_mean, mask=valid)
    tl.store(to_var, used_var, mask=valid)
    if CLASSES:
        tl.store(to_new_mean, batch_mean, mask=valid)
        tl.store(to_new_var, batch_var, mask=valid)
        tl.store(to_new_size, n)
    else:
        past_mean = mean
        past_var = var
        total = all_total
        squares = all_squares
    if HAS_LAST or not CLASSES:
        tl.store(to_seen_mean, past_mean, mask=valid)
        tl.store(to_seen_var, past_var, mask=valid)
        tl.store(to_counts, total)
        tl.store(to_counts + 1, squares)


def follow(tables: Tensor, sizes: Tensor, rule: Past, eps: float, part: Tensor) -> None:
    """From the tables and sizes of `statistics` to the statistics to normalise with, in tables 2 and 3.

    Also what the streams with the numbers `part` remember from now on.
    """
    _, groups, channels = tables.shape
    clean, states, results = rule.clean, rule.states, rule.results
    block = max(FEWEST_CHANNELS, power_of_2(channels))
    _follow(
        (part.shape[0], 1, 1),
        (
            states.matrix, states.offsets, results.matrix, results.offsets, tables, sizes, part, clean.mean, clean.var,
            clean.weight, *rule.source,
        ),
        (groups, channels, states.matrix.stride(0), results.matrix.stride(0)),
        (
            eps, rule.momentum, clean.between, 1 / clean.size, rule.network, rule.skew, rule.doubt, clean.offset,
            MOST_FREEDOM, HEAVY_TAILS, MOST_EVIDENCE, *LIMITS,
        ),
        (
            block, rule.has_past, rule.has_last, rule.has_shares, rule.is_expected,
            rule.has_classes,
        ),
        warps=min(16, max(4, block // 256)),
    )  # fmt: skip
