"""Means and variances per channel: how they are pooled, and how far apart two of them are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Statistics(NamedTuple):
    """What a batch norm layer normalises with: y = weight · (x − mean) / √(var + eps) + bias.

    One value a channel, shape [C]; or one a channel and example, shape [N, C], for a strategy that
    treats the examples of a batch differently. The variance is the biased one, Σ(x − mean)² / count.
    """

    mean: Tensor
    var: Tensor


class Moments(NamedTuple):
    """Statistics of values that were counted, so that they can be pooled with others.

    `values` is the number of values a channel (examples × positions), `size` the number of examples.
    Both are tensors where several processes contributed, so that nothing waits for a device.
    """

    mean: Tensor
    var: Tensor
    values: int | Tensor
    size: int | Tensor

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.mean, self.var)


class Seen(NamedTuple):
    """The statistics of the last batch a layer saw, as the kernel left them: `spread` is the variance,
    or 1/√(var + eps) where `eps` is given. Nothing is computed from them until somebody asks."""

    mean: Tensor
    spread: Tensor
    eps: float | None = None

    @property
    def statistics(self) -> Statistics:
        if self.eps is None:
            return Statistics(self.mean, self.spread)
        return Statistics(self.mean, (self.spread.double() ** -2 - self.eps).clamp(min=0).to(self.spread.dtype))


def mix(a: Statistics, b: Statistics, weight: float | Tensor) -> Statistics:
    """(1 − weight)·a + weight·b, for means and variances alike."""
    if type(weight) is float:
        return Statistics(torch.lerp(a.mean, b.mean, weight), torch.lerp(a.var, b.var, weight))
    if isinstance(weight, Tensor):
        weight = weight.to(a.mean.dtype)
    return Statistics(a.mean + weight * (b.mean - a.mean), a.var + weight * (b.var - a.var))


def pool(a: Moments, b: Moments) -> Moments:
    """The moments of the union of two sets, exactly (Chan, Golub and LeVeque).

    With w = values_b / values and δ = mean_b − mean_a:
    mean = mean_a + w·δ,  var = (1 − w)·var_a + w·var_b + w·(1 − w)·δ².
    """
    values = a.values + b.values
    w = b.values / values
    delta = b.mean - a.mean
    mean = a.mean + w * delta
    var = a.var + w * (b.var - a.var) + w * (1 - w) * delta * delta
    return Moments(mean, var, values, a.size + b.size)


def distance(batch: Statistics, source: Statistics, eps: float) -> float:
    """How far a batch's statistics are from the source ones, in source standard deviations.

    The 2-Wasserstein distance between the two Gaussians of each channel, relative to the source's
    spread, as root mean square over the channels:
    √ mean_c [ ((μ_b − μ_s)² + (σ_b − σ_s)²) / (σ_s² + eps) ].
    0 where nothing has shifted, 1 where a typical channel is off by a whole standard deviation.
    """
    mean_b, var_b = (t.detach().double().cpu() for t in batch)
    mean_s, var_s = (t.detach().double().cpu() for t in source)
    squared = (mean_b - mean_s) ** 2 + (var_b.clamp(min=0).sqrt() - var_s.clamp(min=0).sqrt()) ** 2
    return float((squared / (var_s + eps)).mean().sqrt())
