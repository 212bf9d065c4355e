"""`mixed` of `auto` in one launch, where its thirty small steps would take longer than the layer itself."""

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
def _apart(some_mean, some_var, mean, var, eps):
    """The difference from the origin's mean, z² and u."""
    move = some_mean - mean
    squared = move * move / (var + eps)
    return move, squared, squared + (some_var - var) / (var + eps)


@triton.jit
def _mixed(
    batch_mean, batch_var, mean, var, weight, source_mean, source_var, new_mean, new_var,
    channels, eps, own, sampling, no_news, kept, least, most, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * channels
    far = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        known = channel < channels
        m, v = tl.load(mean + channel, mask=known, other=0.0), tl.load(var + channel, mask=known, other=1.0)
        h = tl.load(weight + channel, mask=known, other=0.0)
        some_mean = tl.load(batch_mean + row + channel, mask=known, other=0.0)
        some_var = tl.load(batch_var + row + channel, mask=known, other=1.0)
        _, squared, growth = _apart(some_mean, some_var, m, v, eps)
        far += h * (squared + growth * growth / 2)
    seen = tl.minimum(tl.maximum(tl.sum(far, 0) - no_news, least), most)
    explained = sampling / seen
    part = 1 / (1 + explained * (1 + explained) * (1 + explained) + kept)
    shift = tl.maximum(seen - sampling, least)
    left = 1 - part * shift / (shift + own)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        known = channel < channels
        m, v = tl.load(mean + channel, mask=known, other=0.0), tl.load(var + channel, mask=known, other=1.0)
        some_mean = tl.load(batch_mean + row + channel, mask=known, other=0.0)
        some_var = tl.load(batch_var + row + channel, mask=known, other=1.0)
        move, squared, growth = _apart(some_mean, some_var, m, v, eps)
        grown = 1 + part * (growth - part * squared)
        offset = tl.load(source_mean + channel, mask=known, other=0.0) - m
        wider = tl.load(source_var + channel, mask=known, other=1.0) - v
        tl.store(new_mean + row + channel, m + part * move + left * tl.sqrt(grown) * offset, mask=known)
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
