"""`mixed` of `auto` in one launch, where its thirty small steps would take longer than the layer itself."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..calibration import Calibration
from ..statistics import Statistics

__all__ = ["mixed"]

_COLUMNS = 1024


@triton.jit
def _compared(batch_mean, batch_var, mean, var, place, channel, known, eps):
    """The batch's difference from the origin, z² and u."""
    centre = tl.load(mean + channel, mask=known, other=0.0)
    own = tl.load(var + channel, mask=known, other=1.0)
    move = tl.load(batch_mean + place, mask=known, other=0.0) - centre
    scale = own + eps
    squared = move * move / scale
    growth = squared + (tl.load(batch_var + place, mask=known, other=1.0) - own) / scale
    return centre, move, squared, growth


@triton.jit
def _mixed(
    batch_mean, batch_var, mean, var, weight, source_mean, source_var, new_mean, new_var,
    channels, eps, sampling, no_news, kept, least, most, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * channels
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        known = channel < channels
        _, _, squared, growth = _compared(batch_mean, batch_var, mean, var, row + channel, channel, known, eps)
        total += tl.load(weight + channel, mask=known, other=0.0) * (squared + growth * growth / 2)
    seen = tl.minimum(tl.maximum(tl.sum(total, 0) - no_news, least), most)
    explained = sampling / seen
    part = 1 / (1 + explained * (1 + explained) * (1 + explained) + kept)
    for start in range(0, channels, COLUMNS):
        channel = start + tl.arange(0, COLUMNS)
        known = channel < channels
        centre, move, squared, growth = _compared(
            batch_mean, batch_var, mean, var, row + channel, channel, known, eps
        )
        grown = 1 + part * (growth - part * squared)
        offset = tl.load(source_mean + channel, mask=known, other=0.0) - centre
        stored = tl.load(source_var + channel, mask=known, other=1.0) + eps
        tl.store(new_mean + row + channel, centre + part * move + tl.sqrt(grown) * offset, mask=known)
        tl.store(new_var + row + channel, tl.maximum(grown * stored - eps, 0.0), mask=known)


def mixed(
    batch: Statistics,
    origin: Calibration,
    source: Statistics,
    eps: float,
    sampling: float,
    no_news: float,
    kept: float,
    bounds: tuple[float, float],
) -> Statistics:
    """What `auto.mixed` says, of [C] or [G, C] in single precision; `bounds` of what is seen."""
    channels = batch.mean.shape[-1]
    tensors = [t.contiguous() for t in (*batch, origin.mean, origin.var, origin.weight, *source)]
    new = torch.empty((2, *batch.mean.shape), dtype=torch.float32, device=batch.mean.device)
    columns = min(_COLUMNS, triton.next_power_of_2(channels))
    grid = (batch.mean.numel() // channels,)
    _mixed[grid](*tensors, *new, channels, eps, sampling, no_news, kept, *bounds, COLUMNS=columns, num_warps=4)
    return Statistics(*new)
