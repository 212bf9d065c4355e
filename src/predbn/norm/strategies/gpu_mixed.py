"""`mixed` of `auto` in one launch, where its fifty small steps would take longer than the layer itself."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..calibration import Calibration
from ..statistics import Statistics
from .auto import RANGE

__all__ = ["mixed"]

_COLUMNS = 1024


@triton.jit
def _against(batch_mean, batch_var, mean, var, channel, row, known, eps):
    """The difference from the origin's mean, z² and r; and the origin's own mean and variance."""
    m, v = tl.load(mean + channel, mask=known, other=0.0), tl.load(var + channel, mask=known, other=1.0)
    move = tl.load(batch_mean + row + channel, mask=known, other=0.0) - m
    squared = move * move / (v + eps)
    second = squared + (tl.load(batch_var + row + channel, mask=known, other=1.0) + eps) / (v + eps)
    return move, squared, second, m, v


@triton.jit
def _within(value, least, most):
    return tl.minimum(tl.maximum(value, least), most)


@triton.jit
def _doubt(explained):
    return explained * (1 + explained) * (1 + explained)


@triton.jit
def _mixed(
    batch_mean, batch_var, mean, var, weight, source_mean, source_var, new_mean, new_var,
    channels, eps, own, sampling, no_news, kept, least, most, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * channels
    totals = tl.zeros([COLUMNS], tl.float32)
    levels = tl.zeros([COLUMNS], tl.float32)
    squares = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        known = channel < channels
        h = tl.load(weight + channel, mask=known, other=0.0)
        _, _, second, _, _ = _against(batch_mean, batch_var, mean, var, channel, row, known, eps)
        logs = tl.log(second)
        totals += h
        levels += h * logs
        squares += h * logs * logs
    total = tl.sum(totals, 0)
    level = tl.sum(levels, 0) / total
    square = _within(level * level, least, most)
    uneven = _within(tl.sum(squares, 0) / total / square - 1, least, most)
    doubt = _doubt(sampling / _within(total * square / 2 - no_news, least, most))
    scale = tl.exp(tl.minimum(level / (1 + doubt + kept * uneven), 0.0))
    far = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        known = channel < channels
        h = tl.load(weight + channel, mask=known, other=0.0)
        _, squared, second, _, _ = _against(batch_mean, batch_var, mean, var, channel, row, known, eps)
        growth = second / scale - 1
        far += h * (squared / scale + growth * growth / 2)
    seen = _within(tl.sum(far, 0) - no_news, least, most)
    part = 1 / (1 + _doubt(sampling / seen) + kept)
    shift = _within(seen - sampling, least, most)
    left = 1 - part * shift / (shift + own)
    followed = 1 - (1 - part) * tl.sqrt(scale)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        known = channel < channels
        move, squared, second, m, v = _against(batch_mean, batch_var, mean, var, channel, row, known, eps)
        grown = scale * (1 - part) + part * (second - part * squared)
        offset = tl.load(source_mean + channel, mask=known, other=0.0) - m
        wider = tl.load(source_var + channel, mask=known, other=1.0) - v
        tl.store(new_mean + row + channel, m + followed * move + left * tl.sqrt(grown) * offset, mask=known)
        tl.store(new_var + row + channel, tl.maximum(grown * (v + eps + left * wider) - eps, 0.0), mask=known)


def mixed(
    batch: Statistics,
    origin: Calibration,
    source: Statistics,
    eps: float,
    sampling: float,
    no_news: float,
    kept: float,
) -> Statistics:
    """What `auto.mixed` says, of [C] or [G, C] in single precision."""
    channels = batch.mean.shape[-1]
    tensors = [t.contiguous() for t in (*batch, origin.mean, origin.var, origin.weight, *source)]
    new = torch.empty((2, *batch.mean.shape), dtype=torch.float32, device=batch.mean.device)
    columns = min(_COLUMNS, triton.next_power_of_2(channels))
    grid = (batch.mean.numel() // channels,)
    _mixed[grid](
        *tensors, *new, channels, eps, origin.offset, sampling, no_news, kept, *RANGE, COLUMNS=columns, num_warps=4
    )
    return Statistics(*new)
