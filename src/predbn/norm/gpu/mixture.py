"""Steps 1 to 5 of `auto` as a kernel.

Some of its numbers are sums over all channels, so that one program has all channels of a group. Names are those of the
equations in `strategies/auto.py`.
"""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ..strategies.auto import LIMITS
from .launch import kernel, power_of_2
from .mixed_moments import scale_and_shift
from .rules import Mixture
from .sums import load_if

FEWEST_CHANNELS = 256
"""Layers with fewer channels share a version of the kernel, because each takes about a second to compile."""
_CLASSES_AT_A_TIME = 256
"""Shares of classes that are read at a time."""


@triton.jit
def clamp(value, least, most):
    return tl.minimum(tl.maximum(value, least), most)


@triton.jit
def source_ratio(s):
    return s * (1 + s) * (1 + s)


@triton.jit
def shared_scale(total, logs, squared_logs, chance, depth, of_classes, least, most):
    """a² of step 4 from Σ h, Σ h·log r and Σ h·(log r)²."""
    ell = logs / total
    ell2 = clamp(ell * ell, least, most)
    omega = clamp(squared_logs / total / ell2 - 1, least, most)
    ratio = source_ratio(chance / clamp(total * ell2 / 2 - of_classes, least, most))
    return tl.exp(tl.minimum(ell / (1 + ratio + depth * omega), 0.0))


@triton.jit
def kept_parts(difference, chance, depth, of_classes, o, least, most):
    """k and f of steps 2 and 5. `difference` is d before the part that classes may explain is subtracted."""
    d = clamp(difference - of_classes, least, most)
    kept = 1 / (1 + source_ratio(chance / d) + depth)
    e = clamp(d - chance, least, most)
    return kept, 1 - kept * e / (e + o)


@triton.jit
def numbers_of_layer(h, z2, r, chance, depth, of_classes, o, least, most):
    """a², k and f from all channels of a layer."""
    log_r = tl.log(r)
    logs = tl.sum(h * log_r, 0)
    squared_logs = tl.sum(h * log_r * log_r, 0)
    a2 = shared_scale(tl.sum(h, 0), logs, squared_logs, chance, depth, of_classes, least, most)
    away = r / a2 - 1
    difference = tl.sum(h * (z2 / a2 + 0.5 * away * away), 0)
    kept, f = kept_parts(difference, chance, depth, of_classes, o, least, most)
    return a2, kept, f


@triton.jit
def mixed(m, v, m_s, v_s, delta, z2, r, a2, kept, f, eps):
    """Mean and variance of steps 3 and 5."""
    g = a2 * (1 - kept) + kept * (r - kept * z2)
    mean = m + (1 - (1 - kept) * tl.sqrt(a2)) * delta + f * tl.sqrt(g) * (m_s - m)
    return mean, tl.maximum(g * (v + eps + f * (v_s - v)) - eps, 0.0)


@triton.jit
def _chance_of_classes(
    shares, squares, doubt, class_sizes, group, classes, own, uneven, few, CLASSES_AT_A_TIME: tl.constexpr
):
    """own·Σ π_g²/M_g + uneven·u·Σ π_g² + few·Σ π_k²."""
    own_chance = tl.zeros([CLASSES_AT_A_TIME], tl.float32)
    unevenness = tl.zeros([CLASSES_AT_A_TIME], tl.float32)
    for first in range(0, classes, CLASSES_AT_A_TIME):
        k = first + tl.arange(0, CLASSES_AT_A_TIME)
        share = tl.load(shares + group * classes + k, mask=k < classes, other=0.0)
        examples = tl.maximum(tl.load(class_sizes + k, mask=k < classes, other=1.0), 1.0)
        own_chance += share * share / examples
        unevenness += share * share
    in_doubt = uneven * tl.sum(unevenness, 0) * tl.load(doubt + group)
    return own * tl.sum(own_chance, 0) + in_doubt + few * tl.load(squares + group)


@kernel()
def _mixture(
    mean, var, count, chance_of_classes, clean_mean, clean_var, weight, source_mean, source_var, norm_weight, norm_bias,
    shares, squares, doubt, class_sizes, asked, out,
    groups, channels, n, classes, eps, o, per_example, constant, network, skew, own, uneven, few, least, most,
    CHANNELS: tl.constexpr, CLASSES_AT_A_TIME: tl.constexpr, COUNT: tl.constexpr, CHANCE: tl.constexpr,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, CLASSES: tl.constexpr, STREAMS: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    if STREAMS:
        group = tl.load(asked + group)
    channel = tl.arange(0, CHANNELS)
    valid = channel < channels
    place = group * channels + channel
    m = tl.load(clean_mean + channel, mask=valid, other=0.0)
    v = tl.load(clean_var + channel, mask=valid, other=1.0)
    h = tl.load(weight + channel, mask=valid, other=0.0)
    m_s = tl.load(source_mean + channel, mask=valid, other=0.0).to(tl.float32)
    v_s = tl.load(source_var + channel, mask=valid, other=1.0).to(tl.float32)
    w = load_if(WEIGHT, norm_weight, channel, valid, 1.0, CHANNELS)
    b = load_if(BIAS, norm_bias, channel, valid, 0.0, CHANNELS)
    examples = n * 1.0
    if COUNT:
        examples = tl.load(count + group)
    chance = per_example / examples + constant
    if CHANCE:
        chance += tl.load(chance_of_classes + group)
    if CLASSES:
        chance += _chance_of_classes(
            shares, squares, doubt, class_sizes, group, classes, own, uneven, few, CLASSES_AT_A_TIME
        )
    delta = tl.load(mean + place, mask=valid, other=0.0) - m
    z2 = delta * delta / (v + eps)
    r = z2 + (tl.load(var + place, mask=valid, other=1.0) + eps) / (v + eps)
    depth = network / (examples + 1)
    a2, kept, f = numbers_of_layer(h, z2, r, chance, depth, skew * (1 - 1 / examples), o, least, most)
    mixed_mean, mixed_var = mixed(m, v, m_s, v_s, delta, z2, r, a2, kept, f, eps)
    size = groups * channels
    tl.store(out + place, mixed_mean, mask=valid)
    tl.store(out + size + place, mixed_var, mask=valid)
    if SCALE:
        scale, shift = scale_and_shift(mixed_mean, mixed_var, w, b, eps)
        tl.store(out + 2 * size + place, scale, mask=valid)
        tl.store(out + 3 * size + place, shift, mask=valid)


def mixture(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], n: int, eps: float, offset: float, *chance: float
) -> None:
    """Write mean, variance, scale and shift to [4, groups, C], from the moments of the batch, [groups, C], and what
    `_mixture` reads."""
    batch, is_given = inputs[0], [inputs[i] is not None for i in (2, 3, 9, 10)]
    channels = batch.shape[-1]
    groups = batch.numel() // channels
    tensors, of_classes = (*inputs, *[None] * 5, *outputs), (0.0, 0.0, 0.0)
    numbers = eps, offset, *chance, *of_classes, *LIMITS
    _launch(groups, tensors, (groups, channels, n, 0), numbers, (*is_given, False, False, True))


def mix_tables(tables: Tensor, sizes: Tensor, rule: Mixture, eps: float, part: Tensor | None) -> None:
    """From the tables and sizes of `statistics` to the statistics to normalise with, in tables 2 and 3.

    With streams this is for those with the numbers `part`.
    """
    _, groups, channels = tables.shape
    clean, has_classes = rule.clean, rule.shares is not None
    assert rule.shares is None or rule.shares.numel() == groups * rule.shares.shape[-1]  # of all streams, not of a part
    batch = tables[2:4] if has_classes else tables[:2]
    of_classes = rule.shares, rule.squares, rule.doubt, clean.class_sizes if has_classes else None
    known = clean.mean, clean.var, clean.weight, *rule.source
    _launch(
        groups if part is None else part.shape[0],
        (*batch, sizes, None, *known, None, None, *of_classes, part, tables[2:]),
        (groups, channels, 0, rule.shares.shape[-1] if has_classes else 0),
        (
            eps, clean.offset, rule.per_example, rule.constant, rule.network, rule.skew, rule.own, rule.uneven,
            rule.few, *LIMITS,
        ),
        (True, False, False, False, has_classes, part is not None, False),
    )  # fmt: skip


def _launch(programs: int, tensors: Any, numbers: Sequence[int], floats: Sequence[float], is_given: Any) -> None:
    block = max(FEWEST_CHANNELS, power_of_2(numbers[1]))
    constants = block, _CLASSES_AT_A_TIME, *is_given
    _mixture((programs, 1, 1), tensors, numbers, floats, constants, warps=min(16, max(4, block // 256)))
