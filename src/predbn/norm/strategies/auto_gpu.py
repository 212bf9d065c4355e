"""`mixture` of `auto` in one launch: its fifty small steps would take longer than the layer itself.

Names and steps are those of `auto.py`. There is one program per group; it goes over the channels three times.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..calibration import Calibration
from ..statistics import Statistics
from .auto import LIMITS

_COLUMNS = 1024


@triton.jit
def _compare(batch_mean, batch_var, clean_mean, clean_var, channel, row, valid, eps):
    """δ, z² and r; also the mean and variance of clean data."""
    m, v = tl.load(clean_mean + channel, mask=valid, other=0.0), tl.load(clean_var + channel, mask=valid, other=1.0)
    delta = tl.load(batch_mean + row + channel, mask=valid, other=0.0) - m
    z2 = delta * delta / (v + eps)
    r = z2 + (tl.load(batch_var + row + channel, mask=valid, other=1.0) + eps) / (v + eps)
    return delta, z2, r, m, v


@triton.jit
def _clamp(value, least, most):
    return tl.minimum(tl.maximum(value, least), most)


@triton.jit
def _source_ratio(s):
    return s * (1 + s) * (1 + s)


@triton.jit
def _mixture(
    batch_mean, batch_var, clean_mean, clean_var, weight, source_mean, source_var, new_mean, new_var,
    channels, eps, o, sampling, between_class, network, least, most, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * channels
    totals = tl.zeros([COLUMNS], tl.float32)
    sums = tl.zeros([COLUMNS], tl.float32)
    squares = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        valid = channel < channels
        h = tl.load(weight + channel, mask=valid, other=0.0)
        _, _, r, _, _ = _compare(batch_mean, batch_var, clean_mean, clean_var, channel, row, valid, eps)
        log_r = tl.log(r)
        totals += h
        sums += h * log_r
        squares += h * log_r * log_r
    total = tl.sum(totals, 0)
    ell = tl.sum(sums, 0) / total
    ell2 = _clamp(ell * ell, least, most)
    omega = _clamp(tl.sum(squares, 0) / total / ell2 - 1, least, most)
    ratio = _source_ratio(sampling / _clamp(total * ell2 / 2 - between_class, least, most))
    a2 = tl.exp(tl.minimum(ell / (1 + ratio + network * omega), 0.0))
    differences = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        valid = channel < channels
        h = tl.load(weight + channel, mask=valid, other=0.0)
        _, z2, r, _, _ = _compare(batch_mean, batch_var, clean_mean, clean_var, channel, row, valid, eps)
        growth = r / a2 - 1
        differences += h * (z2 / a2 + growth * growth / 2)
    d = _clamp(tl.sum(differences, 0) - between_class, least, most)
    k = 1 / (1 + _source_ratio(sampling / d) + network)
    e = _clamp(d - sampling, least, most)
    f = 1 - k * e / (e + o)
    followed = 1 - (1 - k) * tl.sqrt(a2)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        valid = channel < channels
        delta, z2, r, m, v = _compare(batch_mean, batch_var, clean_mean, clean_var, channel, row, valid, eps)
        g = a2 * (1 - k) + k * (r - k * z2)
        mean_offset = tl.load(source_mean + channel, mask=valid, other=0.0) - m
        var_offset = tl.load(source_var + channel, mask=valid, other=1.0) - v
        tl.store(new_mean + row + channel, m + followed * delta + f * tl.sqrt(g) * mean_offset, mask=valid)
        tl.store(new_var + row + channel, tl.maximum(g * (v + eps + f * var_offset) - eps, 0.0), mask=valid)


def mixture_on_gpu(
    batch: Statistics,
    clean: Calibration,
    source: Statistics,
    eps: float,
    sampling: float,
    between_class: float,
    network: float,
) -> Statistics:
    """The same as `auto.mixture`, for [C] or [G, C] in single precision."""
    channels = batch.mean.shape[-1]
    tensors = [t.contiguous() for t in (*batch, clean.mean, clean.var, clean.weight, *source)]
    new = torch.empty((2, *batch.mean.shape), dtype=torch.float32, device=batch.mean.device)
    columns = min(_COLUMNS, triton.next_power_of_2(channels))
    grid = (batch.mean.numel() // channels,)
    _mixture[grid](
        *tensors, *new, channels, eps, clean.offset, sampling, between_class, network, *LIMITS,
        COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return Statistics(*new)
