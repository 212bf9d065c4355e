"""How far a distribution has moved from the reference, channel by channel, and how far chance alone would move it.

The distance of a channel is the 1-Wasserstein distance between the two histograms,

    W₁ = ∫ |F(y) − G(y)| dy,

the mean way a value has to go: a shift by δ has W₁ = δ, and unlike a divergence it stays finite and goes on
growing when the two no longer overlap. It is given in standard deviations of the channel on the reference data.

Two samples of n and m values from one distribution are not at distance 0: F_n(y) − G_m(y) is then nearly normal
with variance F(1 − F)(1/n + 1/m), so that the expected distance is

    E W₁ = √(2/π · (1/n + 1/m)) · ∫ √(F(1 − F)) dy,

which is the *noise* that a measured distance is held against.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from predbn.common import DiagnosticError

from .gaussian import Gaussian
from .histogram import Histogram

__all__ = ["noise", "unit", "wasserstein"]

LEAST_UNIT = 0.1


def wasserstein(reference: Histogram, other: Histogram) -> Tensor:
    """W₁ between two histograms over the same bins, for each column, in the values' own units.

    Within a bin values count as spread evenly, so that W₁ is right to a fraction of the bin's width; beyond the
    bins it is exact as long as only one of the two has values there.
    """
    if not reference.bins.same(other.bins):
        raise DiagnosticError("These histograms have other bins: count both over the bins of one reference.")
    gap = reference.cumulative - other.cumulative.to(reference.counts.device)
    left, right = gap[:, :-1], gap[:, 1:]
    sides = left.abs() + right.abs()
    crossing = (left.square() + right.square()) / sides.clamp(min=torch.finfo(gap.dtype).tiny)
    area = 0.5 * torch.where(left * right < 0, crossing, sides).sum(1) * reference.bins.width
    means = reference.beyond / reference.count - other.beyond.to(gap.device) / other.count
    return area + means.abs().sum(1)


def noise(reference: Histogram, count: int) -> Tensor:
    """The expected W₁ of `count` values more from the reference's own distribution, for each column."""
    below = reference.cumulative
    spread = (below * (1 - below)).clamp(min=0).sqrt()
    area = torch.trapezoid(spread, dim=1) * reference.bins.width
    return area * math.sqrt(2 / math.pi * (1 / reference.count + 1 / count))


def unit(reference: Gaussian) -> Tensor:
    """What distances are given in: the channel's standard deviation on the reference data.

    It is at least a tenth of the layer's (root mean square over the channels): a channel that hardly moves on
    the reference data must not drown all others. In a layer that never moves, distances stay as they are.
    """
    layer = float(reference.var.mean().sqrt())
    if layer == 0:
        return torch.ones_like(reference.var)
    return reference.var.sqrt().clamp(min=LEAST_UNIT * layer)
