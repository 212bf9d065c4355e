"""Moments of a batch, mixed with a reference, and what a compiled network normalises with.

With the moments m and v of the n examples of a batch, and those of the reference, m_r and v_r,

    mean = m_r + w·(m − m_r),    var = v_r + w·(v − v_r),    w = share, or n/(n + N),
    scale = weight/√(var + eps),    shift = bias − mean·scale.

x·scale + shift is then one operation for every value, which Inductor fuses with the activation and the residual. It is
for half precision, where a value has an error of 2⁻¹¹ of itself: the 2⁻²⁴ of the product with the mean do not count.
"""

# mypy: ignore-errors
from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import ceil_div, kernel
from .operators import MIXED_ROWS
from .sums import BLOCK, BLOCK_WARPS, load_if, moments_of_sums, pieces_at_a_time, sums, tiling_of

_COLUMNS = 256
"""Channels of a program that has one sum for each."""


class Mixing(NamedTuple):
    """What the moments of a batch are mixed with, and the affine part of the layer.

    reference_mean, reference_var   m_r and v_r, [C]; None if the batch is not mixed with anything
    share                           w; None if it is n/(n + N)
    source_size                     N
    weight, bias                    those of the layer, [C]; None if it has none
    """

    reference_mean: Tensor | None = None
    reference_var: Tensor | None = None
    share: float | None = 1.0
    source_size: float = 0.0
    weight: Tensor | None = None
    bias: Tensor | None = None
    eps: float = 1e-5

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.reference_mean, self.reference_var, self.weight, self.bias

    @property
    def numbers(self) -> tuple[float, ...]:
        return 1.0 if self.share is None else self.share, self.source_size, self.eps

    @property
    def constants(self) -> tuple[bool, ...]:
        return self.reference_mean is not None, self.share is None, self.weight is not None, self.bias is not None


@triton.jit
def scale_and_shift(mean, var, weight, bias, eps):
    """Of x·scale + shift = weight·(x − mean)/√(var + eps) + bias."""
    scale = weight * (1 / tl.sqrt(var + eps))
    return scale, bias - mean * scale


@triton.jit
def _parameters(
    weight, bias, reference_mean, reference_var, channel, valid,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, MIX: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Those of the layer, and what its moments are mixed with."""
    w = load_if(WEIGHT, weight, channel, valid, 1.0, COLUMNS)
    b = load_if(BIAS, bias, channel, valid, 0.0, COLUMNS)
    start_mean = load_if(MIX, reference_mean, channel, valid, 0.0, COLUMNS)
    start_var = load_if(MIX, reference_var, channel, valid, 1.0, COLUMNS)
    return w, b, start_mean, start_var


@triton.jit
def _store_mixed(
    mean, var, reference_mean, reference_var, weight, bias, out, channel, channels, n, share, source_size, eps,
    MIX: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    valid = channel < channels
    place = out + channel
    tl.store(place, mean, mask=valid)
    tl.store(place + channels, var, mask=valid)
    if MIX:
        if COUNTED:
            share = n / (n + source_size)
        mean = reference_mean + share * (mean - reference_mean)
        var = reference_var + share * (var - reference_var)
    scale, shift = scale_and_shift(mean, var, weight, bias, eps)
    tl.store(place + 2 * channels, mean, mask=valid)
    tl.store(place + 3 * channels, var, mask=valid)
    tl.store(place + 4 * channels, scale, mask=valid)
    tl.store(place + 5 * channels, shift, mask=valid)


@kernel()
def _of_sums(
    sums, reference_mean, reference_var, weight, bias, out, rows, pieces, channels, n, share, source_size, eps,
    PIECES: tl.constexpr, COLUMNS: tl.constexpr, MIX: tl.constexpr, COUNTED: tl.constexpr, WEIGHT: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    w, b, start_mean, start_var = _parameters(
        weight, bias, reference_mean, reference_var, channel, valid, WEIGHT, BIAS, MIX, COLUMNS
    )
    mean, var = moments_of_sums(sums, 0, pieces, rows, channel, channels, PIECES, COLUMNS)
    _store_mixed(
        mean, var, start_mean, start_var, w, b, out, channel, channels, n, share, source_size, eps, MIX, COUNTED
    )


@kernel()
def _of_totals(
    totals, reference_mean, reference_var, weight, bias, out, rows, channels, n, share, source_size, eps, least,
    COLUMNS: tl.constexpr, MIX: tl.constexpr, COUNTED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = channel < channels
    w, b, start_mean, start_var = _parameters(
        weight, bias, reference_mean, reference_var, channel, valid, WEIGHT, BIAS, MIX, COLUMNS
    )
    mean = tl.load(totals + channel, mask=valid, other=0.0) / rows
    square = tl.load(totals + channels + channel, mask=valid, other=0.0) / rows
    # Not maximum(·, ·), which would make a number of what is not one.
    difference = square - mean * mean
    bound = least * mean * mean
    var = tl.where(difference < bound, bound, difference)
    _store_mixed(
        mean, var, start_mean, start_var, w, b, out, channel, channels, n, share, source_size, eps, MIX, COUNTED
    )


def _new_output(like: Tensor) -> Tensor:
    return torch.empty((MIXED_ROWS, like.shape[-1]), dtype=torch.float32, device=like.device)


def mixed_moments_from(found: Tensor, rows: int, n: int, mixing: Mixing, out: Tensor | None = None) -> Tensor:
    """Moments, mixture, scale and shift, [6, C], from the sums of `sums.py` over the `rows` values of n examples."""
    pieces, _, channels = found.shape[1:]
    out = _new_output(found) if out is None else out
    _of_sums(
        (ceil_div(channels, BLOCK), 1, 1),
        (found, *mixing.tensors, out),
        (rows, pieces, channels, n),
        mixing.numbers,
        (pieces_at_a_time(pieces), BLOCK, *mixing.constants),
        warps=BLOCK_WARPS,
    )
    return out


def mixed_moments_of_totals(totals: Tensor, rows: int, n: int, mixing: Mixing, least: float) -> Tensor:
    """The same from Σx and Σx², [2, C]. The variance is at least `least` of the squared mean."""
    channels, out = totals.shape[1], _new_output(totals)
    grid = ceil_div(channels, _COLUMNS), 1, 1
    numbers = *mixing.numbers, least
    _of_totals(grid, (totals, *mixing.tensors, out), (rows, channels, n), numbers, (_COLUMNS, *mixing.constants))
    return out


def mixed_moments(x: Tensor, mixing: Mixing, out: Tensor | None = None) -> Tensor:
    """The same of dense x, [N, C, …]."""
    tiling = tiling_of(x, 1)
    return mixed_moments_from(sums(x, tiling), tiling.rows, x.shape[0], mixing, out)
