"""Distances between the distributions of activations, as the paper's figures show them.

**The distance of a channel** is the 1-Wasserstein distance between two histograms,

    W₁ = ∫ |F(y) − G(y)| dy,

the mean distance that a value has to move: a shift by δ has W₁ = δ, and unlike a divergence it stays finite and keeps
growing when the two no longer overlap.

**The divergence of a layer.** The paper writes KL(p ‖ q) for training activations p and test activations q, and
approximates it by

    T⁻¹ Σ_i ln q̂(h_i) / p̂(h_i),    h_i the T test points, p̂ and q̂ Gaussians with the moments of p and q.

A mean over *test* points of ln q/p estimates KL(q ‖ p), the other direction than the one written: it is large if test
points lie where there are no training points. And it needs no second pass over the points: ln q̂/p̂ is quadratic in h,
so its mean over the test points depends on their means and variances alone, which are those of q̂. The sum therefore
*is* the closed form KL(q̂ ‖ p̂), up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import DiagnosticError

from .distribution import Distribution, check_same_bins

_MIN_RELATIVE_STD = 0.1
_MIN_RELATIVE_VARIANCE = 1e-6


def wasserstein(reference: Distribution, other: Distribution) -> Tensor:
    """W₁ between two histograms over the same bins, for each column, in the values' own units.

    Values count as evenly spread within a bin, so the error of W₁ is a fraction of the bin's width. Beyond the bins it
    is exact as long as only one of the two has values there.
    """
    check_same_bins(reference, other)
    bins, _, beyond_reference = reference.histogram
    gap = reference.cumulative - other.cumulative
    left, right = gap[:, :-1], gap[:, 1:]
    sides = left.abs() + right.abs()
    crossing = (left.square() + right.square()) / sides.clamp(min=torch.finfo(gap.dtype).tiny)
    area = 0.5 * torch.where(left * right < 0, crossing, sides).sum(1) * bins.width
    beyond = beyond_reference / reference.count - other.histogram[2] / other.count
    return area + beyond.abs().sum(1)


def distance_unit(reference: Distribution) -> Tensor:
    """The unit of distances: the standard deviation of each channel on the reference data.

    It is at least a tenth of the layer's (root mean square over the channels), because otherwise a channel that hardly
    varies on the reference data would dominate all others. If no channel of the layer varies, the unit is 1.
    """
    layer_std = float(reference.var.mean().sqrt())
    if layer_std == 0:
        return torch.ones_like(reference.var)
    return reference.var.sqrt().clamp(min=_MIN_RELATIVE_STD * layer_std)


def paper_divergence(train: Distribution, test: Distribution) -> float:
    """T⁻¹ Σ_i ln q̂(h_i)/p̂(h_i) over the test points h_i, in nats, from the two fits alone: KL(q̂ ‖ p̂).

    The Gaussians have independent dimensions, as in the paper:

        KL(q̂ ‖ p̂) = ½ Σ_d [ σ²_q/σ²_p + (μ_p − μ_q)²/σ²_p − 1 + ln σ²_p/σ²_q ].

    Variances are at least a millionth of the mean training variance: a dimension that never varies (a dead unit) would
    make every divergence infinite.
    """
    if train.mean.shape != test.mean.shape:
        raise DiagnosticError(
            f"Expected two distributions of the same layer, but got {len(train.mean)} and {len(test.mean)} dimensions."
        )
    min_var = _MIN_RELATIVE_VARIANCE * (float(train.var.mean()) or 1.0)
    mean_p, var_p = train.mean, train.var.clamp(min=min_var)
    mean_q, var_q = test.mean, test.var.clamp(min=min_var)
    return float(0.5 * (var_q / var_p + (mean_p - mean_q).square() / var_p - 1 + (var_p / var_q).log()).sum())
