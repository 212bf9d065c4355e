"""How much the past of a stream still counts when a new batch has come.

Past and batch are two estimates of the same statistics. With n_p and n_b examples behind them, they differ by

    D = Σ h·(z² + (r − 1)²/2),    z² = (μ_b − μ_p)²/σ²,    r − 1 = (σ_b² + (μ_b − μ_p)² − σ_p²)/σ²,

where σ² is the variance of both together, and h are the weights of the calibration, in which the chance of one example
counts 1. If nothing has changed, D is s = 1/n_b + 1/n_p on average, and scatters about like s·χ²/ν with ν degrees of
freedom. If the stream has changed, the variance of the change is added to s. The most likely variance makes D = s + it,
so a change explains D better than chance does by the likelihood ratio

    Λ = exp(ν/2·(q − 1 − log q)),    q = max(1, D/s).

Let m, the momentum, be the probability of a change before the batch was seen. Then nothing has changed with probability

    w = (1 − m) / (1 − m + m·Λ),

and w is the weight that is left to each example of the past. A batch that fits the past makes Λ = 1 and w = 1 − m. A
batch that contradicts it makes w nearly 0, and the stream begins anew.

The channels of a layer are not independent, and single examples have heavy tails. On ResNet-20, ν is about 12 for many
examples (16 to 64 channels), 10 for 20 and 2 for one, which is ν = 12/(1 + 5·s).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..statistics import Statistics
from .auto import LIMITS, add_scaled
from .calibration import Calibration, weighted_sum

MAX_FREEDOM, HEAVY_TAILS = 12.0, 5.0
"""ν = 12/(1 + 5·s), measured on clean and shifted images of development."""
MAX_EVIDENCE = 50.0
"""log Λ is at most this, so that nothing becomes infinite."""


class Estimate(NamedTuple):
    """Statistics of examples that have weights w: `total` is Σ w and `squares` Σ w²."""

    statistics: Statistics
    total: Tensor | float
    squares: Tensor | float

    @property
    def size(self) -> Tensor | float:
        """How many examples of equal weight would tell as much: n = (Σ w)²/Σ w²."""
        return self.total * self.total / self.squares


def combine(past: Estimate | None, new: Estimate, clean: Calibration | None, eps: float, momentum: float) -> Estimate:
    """Past and new batch together, with the past weighted by w. Without `clean` nothing tells chance, and w = 1 − m."""
    if past is None:
        return new
    mean, var = past.statistics
    delta, growth = new.statistics.mean - mean, new.statistics.var - var
    delta2 = delta * delta
    kept: Tensor | float = 1 - momentum
    if clean is not None:
        share = new.total / (past.total + new.total)
        both = _pooled_var(var, growth, delta2, share).detach() + eps
        chance = 1 / new.size + 1 / past.size
        kept = _unchanged(delta2.detach() / both, growth.detach() / both, clean, chance, momentum)
    total, squares = kept * past.total, kept * kept * past.squares
    share = new.total / (total + new.total)
    pooled = Statistics(add_scaled(mean, share, delta), _pooled_var(var, growth, delta2, share))
    return Estimate(pooled, total + new.total, squares + new.squares)


def _pooled_var(var: Tensor, growth: Tensor, delta2: Tensor, share: Tensor | float) -> Tensor:
    """The variance of two sets (see `pool_central_moments`), of which the second has this share."""
    return add_scaled(add_scaled(var, share, growth), share * (1 - share), delta2)


def _unchanged(
    z2: Tensor, growth: Tensor, clean: Calibration, chance: Tensor | float, momentum: float
) -> Tensor | float:
    """w: the probability that nothing has changed. r − 1 is the growth of the variance plus z²."""
    growth = growth + z2
    difference = weighted_sum(clean.weight, torch.addcmul(z2, growth, growth, value=0.5))
    freedom = MAX_FREEDOM / (1 + HEAVY_TAILS * chance)
    ratio = _likelihood_ratio(difference / chance, freedom)
    return (1 - momentum) / (1 - momentum + momentum * ratio)


def _likelihood_ratio(q: Tensor | float, freedom: Tensor | float) -> Tensor | float:
    """Λ for D/s = q."""
    if isinstance(q, Tensor):
        q = q.clamp(1, LIMITS[1])
        return (freedom / 2 * (q - 1 - q.log())).clamp(max=MAX_EVIDENCE).exp()
    q = min(max(q, 1.0), LIMITS[1])
    return math.exp(min(float(freedom / 2 * (q - 1 - math.log(q))), MAX_EVIDENCE))
