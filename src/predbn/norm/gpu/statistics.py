"""From the sums of a batch to its statistics: bounded influence, and what its classes explain.

The equations are those of `robust.py`, and of step 0 of `auto`. One program has a few channels of one group. What
`auto` needs of all channels follows in a kernel of its own (`mixture.py`): the last program of this one could do the
same, but with its single warp it takes longer than another launch.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..kernels import IS_INTERPRETED
from ..robust import GAUSSIAN, QUANTILES, TINY, WIDER_FOR_FEW
from ..stream_rows import Segments, rounded_size
from .launch import ceil_div, kernel, new_memory, power_of_2
from .quantiles import MOST_SORTED, quantiles
from .rules import Bounds, Mix, Mixture, Past, Rule
from .sums import BLOCK, BLOCK_WARPS, load_if, moments_of_sums, pieces_at_a_time

_TILE, _COLUMNS, _BLOCKS = 1024, 4, 512
"""Values of examples and channels that a program has at most, which are as many as one warp can hold, so that a search
over the examples stays within the warp; the most channels of a program; and how many programs there are at most, if
that needs no more channels."""
_FEW_VALUES, _MOST_COLUMNS = 256, 32
"""The same for streams, which mostly have few examples: a program then has more channels."""
_FEW_AT_A_TIME, _MOST_AT_A_TIME = 8, 64
"""Examples that are read at a time where they are not sorted: the first number if no stream has more."""
_MOST_TILES = tl.constexpr(2 if IS_INTERPRETED else 8)
"""Tiles of sums that are asked for at a time. The interpreter waits for each."""
_CLASSES_AT_A_TIME = 512
"""Shares of classes and channels that are read at a time."""


@triton.jit
def _examples(order, begin, index, n, STREAMS: tl.constexpr):
    """The numbers of a group's examples in the batch; −1 for those that it does not have."""
    if STREAMS:
        found = tl.load(order + begin + index, mask=index < n, other=-1)
    else:
        found = tl.where(index < n, begin + index, -1)
    return found


@triton.jit
def _example_moments(sums, examples, pieces, rows, channel, channels, COLUMNS: tl.constexpr, EXAMPLES: tl.constexpr):
    """Mean and variance of each example of a group, [columns, examples]; `examples` are their numbers in the batch.

    Pieces are not read one after the other, which would take long: with few examples and channels several lie beside
    each other in a tile, and several tiles are asked for before the first one is waited for.
    """
    BESIDE: tl.constexpr = 1 if EXAMPLES * COLUMNS >= 128 else 128 // (EXAMPLES * COLUMNS)
    TILES: tl.constexpr = 1 if EXAMPLES * COLUMNS >= 1024 else min(_MOST_TILES, 1024 // (EXAMPLES * COLUMNS))
    total = tl.zeros([COLUMNS, EXAMPLES, BESIDE], tl.float32)
    squares = tl.zeros([COLUMNS, EXAMPLES, BESIDE], tl.float32)
    inside = (examples >= 0)[None, :] & (channel < channels)[:, None]
    place = sums + (tl.maximum(examples, 0) * pieces * 3).to(tl.int64)[None, :] * channels + channel[:, None]
    for first in range(0, pieces, TILES * BESIDE):
        for tile in tl.static_range(TILES):
            piece = first + tile * BESIDE + tl.arange(0, BESIDE)
            is_piece = inside[:, :, None] & (piece < pieces)[None, None, :]
            place_of_piece = place[:, :, None] + (piece * 3 * channels)[None, None, :]
            total += tl.load(place_of_piece, mask=is_piece, other=0.0)
            squares += tl.load(place_of_piece + channels, mask=is_piece, other=0.0)
    pilot = tl.load(place + 2 * channels, mask=inside, other=0.0)
    offset = tl.sum(total, 2) / rows
    return pilot + offset, tl.maximum(tl.sum(squares, 2) / rows - offset * offset, 0.0)


@triton.jit
def _class_moments(
    class_means, class_squares, shares, classes, channel, channels, COLUMNS: tl.constexpr, AT_A_TIME: tl.constexpr
):
    """μ_π and σ_π², mean and variance of clean data whose classes have these shares."""
    valid = channel < channels
    mean = tl.zeros([COLUMNS], tl.float32)
    square = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, classes, AT_A_TIME):
        k = first + tl.arange(0, AT_A_TIME)
        share = tl.load(shares + k, mask=k < classes, other=0.0)[:, None]
        offset = k[:, None] * channels + channel[None, :]
        inside = (k < classes)[:, None] & valid[None, :]
        mean += tl.sum(share * tl.load(class_means + offset, mask=inside, other=0.0), 0)
        square += tl.sum(share * tl.load(class_squares + offset, mask=inside, other=0.0), 0)
    return mean, tl.maximum(square - mean * mean, 0.0)


@triton.jit
def without_classes(mean, var, m, v, class_mean, class_var, eps):
    """A batch without what its classes explain."""
    return mean - (class_mean - m), tl.maximum((var + eps) * ((v + eps) / (class_var + eps)) - eps, 0.0)


@kernel()
def _statistics(
    sums, is_bad, clean_mean, clean_var, scatter, clipping, evenness, class_means, class_squares, shares,
    reference_mean, reference_var, bound_var, order, starts, asked, states, offsets, out, sizes,
    groups, n, rows, pieces, channels, classes, stride, eps, limit, fixed_weight, source_size, scatter_number, wider,
    tiny, gaussian, low_quantile, centre_quantile, high_quantile,
    COLUMNS: tl.constexpr, EXAMPLES: tl.constexpr, PIECES: tl.constexpr, ROBUST: tl.constexpr, CORRECTED: tl.constexpr,
    UNEVEN: tl.constexpr, SCATTER: tl.constexpr, CLASSES: tl.constexpr, MIX: tl.constexpr, WEIGHT: tl.constexpr,
    STREAMS: tl.constexpr, IN_PLACE: tl.constexpr, COUNTED: tl.constexpr, BETWEEN: tl.constexpr,
    EXPECTED: tl.constexpr, LAST: tl.constexpr, LAST_CLASSES: tl.constexpr, AT_A_TIME: tl.constexpr,
    MOST_SORTED: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    begin = group * n
    if STREAMS:
        group = tl.load(asked + group)
        begin = tl.load(starts + group)
        n = tl.load(starts + group + 1) - begin
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    size = groups * channels
    place = out + group * channels + channel
    row_offset = tl.program_id(0).to(tl.int64) * stride
    start_mean = load_if(MIX, reference_mean + row_offset, channel, valid, 0.0, COLUMNS)
    start_var = load_if(MIX, reference_var + row_offset, channel, valid, 1.0, COLUMNS)
    if ROBUST:
        usual = tl.load(bound_var + channel, mask=valid, other=1.0).to(tl.float32)
        least = scatter_number
        if SCATTER:
            least = tl.load(scatter + channel, mask=valid, other=1.0)
        if CORRECTED:
            clip_offset = tl.load(clipping + channel, mask=valid, other=0.0)
            clip_within = tl.load(clipping + channels + channel, mask=valid, other=1.0)
            clip_between = tl.load(clipping + 2 * channels + channel, mask=valid, other=1.0)
        index = tl.arange(0, EXAMPLES)
        example = _examples(order, begin, index, n, STREAMS)
        is_used = (index < n) & (tl.load(is_bad + tl.maximum(example, 0), mask=index < n, other=1) == 0)
        count = tl.sum(is_used.to(tl.float32), 0)
        means, variances = _example_moments(sums, example, pieces, rows, channel, channels, COLUMNS, EXAMPLES)
        means = tl.where(is_used[None, :], means, float("inf"))
        variances = tl.where(is_used[None, :], variances + (eps + tiny), float("inf"))
        last = tl.maximum(count - 1, 0.0)
        low, centre, high, low_var, centre_var, high_var = quantiles(
            means, variances, low_quantile, centre_quantile, high_quantile, last, COLUMNS, EXAMPLES, MOST_SORTED
        )
        spread = tl.maximum((high - low) / gaussian, tl.sqrt(least * (usual + eps)))
        log_spread = tl.maximum(tl.log(high_var / low_var) / gaussian, tl.sqrt(2 * least))
        bound = limit * (1 + wider / count)
        step = bound * spread
        factor = tl.exp(bound * log_spread)
        means = tl.minimum(tl.maximum(means, (centre - step)[:, None]), (centre + step)[:, None])
        variances = tl.minimum(tl.maximum(variances, (centre_var / factor)[:, None]), (centre_var * factor)[:, None])
        weight = is_used.to(tl.float32) / count
        mean = tl.sum(weight[None, :] * means, 1)
        away = means - mean[:, None]
        between = tl.sum(weight[None, :] * away * away, 1)
        within = tl.maximum(tl.sum(weight[None, :] * variances, 1) - (eps + tiny), 0.0)
        if CORRECTED:
            share = tl.exp(-6.0 / tl.maximum(count, 1.0))
            if UNEVEN:
                share *= tl.load(evenness + group)
            mean += share * clip_offset * spread
            within *= tl.exp(share * tl.log(clip_within))
            var = within + between * tl.exp(share * tl.log(clip_between))
        else:
            var = within + between
        if BETWEEN:
            tl.store(place + 4 * size, between, mask=valid)
            tl.store(place + 5 * size, spread, mask=valid)
    elif STREAMS:
        mean = tl.zeros([COLUMNS], tl.float32)
        var = tl.zeros([COLUMNS], tl.float32)
        count = tl.sum(tl.zeros([EXAMPLES], tl.float32), 0)
        for first in range(0, n, EXAMPLES):
            index = first + tl.arange(0, EXAMPLES)
            example = _examples(order, begin, index, n, STREAMS)
            is_used = (index < n) & (tl.load(is_bad + tl.maximum(example, 0), mask=index < n, other=1) == 0)
            means, variances = _example_moments(sums, example, pieces, rows, channel, channels, COLUMNS, EXAMPLES)
            mean += tl.sum(tl.where(is_used[None, :], means, 0.0), 1)
            count += tl.sum(is_used.to(tl.float32), 0)
        mean = mean / count
        for first in range(0, n, EXAMPLES):
            index = first + tl.arange(0, EXAMPLES)
            example = _examples(order, begin, index, n, STREAMS)
            is_used = (index < n) & (tl.load(is_bad + tl.maximum(example, 0), mask=index < n, other=1) == 0)
            means, variances = _example_moments(sums, example, pieces, rows, channel, channels, COLUMNS, EXAMPLES)
            away = means - mean[:, None]
            var += tl.sum(tl.where(is_used[None, :], variances + away * away, 0.0), 1)
        var = var / count
    else:
        mean, var = moments_of_sums(sums, group, pieces, rows, channel, channels, PIECES, COLUMNS)
        count = n * 1.0
    tl.store(place, mean, mask=valid)
    tl.store(place + size, var, mask=valid)
    if COUNTED:
        tl.store(sizes + group, count)
    if MIX:
        share = fixed_weight
        if WEIGHT:
            share = count / (count + source_size)
        mixed_mean = start_mean + share * (mean - start_mean)
        mixed_var = start_var + share * (var - start_var)
        tl.store(place + 2 * size, mixed_mean, mask=valid)
        tl.store(place + 3 * size, mixed_var, mask=valid)
        if IN_PLACE:
            tl.store(reference_mean + row_offset + channel, mixed_mean, mask=valid)
            tl.store(reference_var + row_offset + channel, mixed_var, mask=valid)
    row = states + row_offset
    if EXPECTED:
        expected_mean, expected_var = _class_moments(
            class_means, class_squares, row + tl.load(offsets + 9), classes, channel, channels, COLUMNS, AT_A_TIME
        )
        tl.store(place + 2 * size, expected_mean, mask=valid)
        tl.store(place + 3 * size, expected_var, mask=valid)
    if LAST:
        last_mean, last_var = _class_moments(
            class_means, class_squares, row + tl.load(offsets + LAST_CLASSES), classes, channel, channels, COLUMNS,
            AT_A_TIME,
        )  # fmt: skip
        tl.store(place + 4 * size, last_mean, mask=valid)
        tl.store(place + 5 * size, last_var, mask=valid)
    if CLASSES:
        m = tl.load(clean_mean + channel, mask=valid, other=0.0)
        v = tl.load(clean_var + channel, mask=valid, other=1.0)
        class_mean, class_var = _class_moments(
            class_means, class_squares, shares + group * classes, classes, channel, channels, COLUMNS, AT_A_TIME
        )
        corrected_mean, corrected_var = without_classes(mean, var, m, v, class_mean, class_var, eps)
        tl.store(place + 2 * size, corrected_mean, mask=valid)
        tl.store(place + 3 * size, corrected_var, mask=valid)


def _columns_for(channels: int) -> int:
    return power_of_2(ceil_div(channels, _BLOCKS))


def statistics(
    found: Tensor,
    n: int,
    rows: int,
    eps: float,
    rule: Rule | None,
    bounds: Bounds | None,
    is_bad: Tensor | None,
    segments: Segments | None = None,
    part: Tensor | None = None,
    out: Tensor | None = None,
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The statistics of every group, [6, groups, C], and except for `Mix` the numbers of examples, [groups, 1].

    The first two are mean and variance of the batch. What the other four are depends on the rule:

    Mix       two to normalise with, if the batch is mixed with anything
    Mixture   two of the batch without what its classes explain, if they are known (`mixture.py` goes on with them)
    Past      mean and variance of clean data with the classes that are expected, and with those of the batch before
    None      the last two are the variance between examples, and their spread

    The numbers of examples are written to `counts` if that is given.

    found     the sums of the groups; with `bounds` or `segments` those of each example, of which a group has n
    rows      how many values each of these sums has
    is_bad    which examples are not finite, [N]; only with `bounds` or `segments`
    segments  the examples of each group if the groups are streams, which differ in size
    part      the streams that the rule is for, if it is not for all; the others keep what they have in `out`
    """
    channels = found.shape[3]
    if segments is not None:
        order, starts, groups = segments.order, segments.starts, segments.numbers.shape[0]
        part = segments.numbers if part is None else part
    else:
        order, starts, groups = None, None, found.shape[0] if bounds is None else found.shape[0] // n
    mixture, mix = rule if isinstance(rule, Mixture) else None, rule if isinstance(rule, Mix) else None
    past = rule if isinstance(rule, Past) else None
    examples, columns = 1, BLOCK
    if segments is not None:
        most = segments.largest
        if bounds is not None:
            examples = rounded_size(most)
        else:
            examples = _FEW_AT_A_TIME if most <= _FEW_AT_A_TIME else _MOST_AT_A_TIME
        columns = min(_MOST_COLUMNS, max(_FEW_VALUES, min(_TILE, _COLUMNS * examples)) // examples)
        columns = min(columns, _columns_for(channels * groups))
    elif bounds is not None:
        examples = rounded_size(n)
        columns = min(_COLUMNS, max(1, _TILE // examples), _columns_for(channels))
    blocks = ceil_div(channels, columns)
    if out is None:
        out = new_memory((6, groups, channels), found.device)
    clean, reference, shares, sizes = None, (None, None), None, None
    if mixture is not None:
        clean, shares = mixture.clean, mixture.shares
    if mix is not None and mix.reference is not None:
        reference = mix.reference
    states = offsets = None
    classes = 0 if shares is None else shares.shape[-1]
    if past is not None:
        clean = past.clean
        states, offsets = past.states.matrix, past.states.offsets
        classes = 0 if clean.class_sizes is None else clean.class_sizes.shape[0]
    if mix is None:
        sizes = new_memory((groups, 1), found.device) if counts is None else counts
    clean_mean = clean_var = class_means = class_squares = None
    if clean is not None:
        clean_mean, clean_var = clean.mean, clean.var
        class_means, class_squares = clean.class_means, clean.class_squares
    limit, bound_var, scatter, clipping, evenness = 0.0, None, 1.0, None, None
    if bounds is not None:
        limit, bound_var, scatter, clipping = bounds.limit, bounds.clean_var, bounds.scatter, bounds.clipping
        evenness = bounds.evenness
    has_scatter = isinstance(scatter, Tensor)
    weight, source_size = (1.0, 0.0) if mix is None else (mix.weight, float(mix.source_size))
    has_rows = mix is not None and reference[0] is not None and reference[0].dim() == 2
    stride = reference[0].stride(0) if has_rows else 0 if states is None else states.stride(0)
    _statistics(
        (groups if part is None else part.shape[0], blocks, 1),
        (
            found, is_bad, clean_mean, clean_var, scatter if has_scatter else None, clipping, evenness, class_means,
            class_squares, shares, *reference, bound_var, order, starts, part, states, offsets, out, sizes,
        ),
        (groups, n, rows, found.shape[1], channels, classes, stride),
        (
            eps, limit, 0.0 if weight is None else float(weight), source_size, 1.0 if has_scatter else float(scatter),
            WIDER_FOR_FEW, TINY, GAUSSIAN, *QUANTILES,
        ),
        (
            columns, examples, pieces_at_a_time(found.shape[1]), bounds is not None, clipping is not None,
            evenness is not None, has_scatter, shares is not None, mix is not None and mix.reference is not None,
            weight is None, segments is not None, mix is not None and mix.in_place, sizes is not None, rule is None,
            past is not None and past.has_classes and past.is_expected, past is not None and past.uses_last_classes,
            8 if past is not None and past.has_shares else 9, min(128, _CLASSES_AT_A_TIME // columns),
            MOST_SORTED,
        ),
        warps=1 if bounds is not None else 4 if segments is not None else BLOCK_WARPS,
    )  # fmt: skip
    return out, sizes
