"""What one pass over unlabelled source data tells about each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .kernels import is_at_hand
from .statistics import Statistics

USUAL_CLASS_SHARE = 0.25
"""How much of the variance of examples lies between classes, where that could not be measured."""


class Calibration(NamedTuple):
    """What a layer sees of clean source data, per channel, with the layers above normalising as in training, and what
    chance makes of it.

    An example i has in each channel a mean m_i and a mean square q_i. A batch of n source examples has the mean
    Σm_i/n, whose sampling variance is Var[m_i]/n; and so for the mean square. That is what a strategy needs to tell a
    shift from chance, and the source data's own offset from the stored statistics.
    """

    size: int
    """How many examples were seen."""
    network: float
    """V: the typical chance of all layers that were calibrated together, added up."""
    between: float
    """What share of the chance lies between the classes that the model predicts: few pairs of a class do not tell it
    for a channel."""
    offset: float
    """How far the stored statistics are from these (`apart`): what augmentation and the moving average left."""
    mean: Tensor
    """μ = E[m_i]: with maps of one size, the mean of all values."""
    var: Tensor
    """σ² = E[q_i] − μ²."""
    weight: Tensor
    """How much a difference says in each channel (`channel_weights`), from t = Var[m_i]/σ² + ½·Var[q_i − 2μ·m_i]/σ⁴:
    how far single examples differ by chance in mean, and in mean square about μ. eps is added to σ²."""

    def against(self, some: Statistics, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Statistics beside these: the difference δ of the means, z² = δ²/σ², and the mean squares about these means,
        r = (σ_b² + δ²)/σ²; eps is added to variances."""
        scale = self.var + eps
        move = some.mean - self.mean
        squared = move * move / scale
        return move, squared, torch.addcdiv(squared, some.var + eps, scale)

    def apart(self, squared: Tensor, second: Tensor) -> Tensor | float:
        """How far that is: Σ h·(z² + (r − 1)²/2), h the weights."""
        growth = second - 1
        return channel_sums(self.weight, torch.addcmul(squared, growth, growth, value=0.5))[0]

    def to(self, like: torch.device | torch.dtype | Tensor) -> Calibration:
        """On a device, in a precision, or with both as a tensor has them."""
        return self._replace(mean=self.mean.to(like), var=self.var.to(like), weight=self.weight.to(like))


LEAST_CHANCE = 1e-12
"""What it does not fall below, so that nothing is divided by zero."""


def channel_weights(chance: Tensor) -> Tensor:
    """h ∝ 1/(t + t̄) with Σ h·t = 1: little for a channel that chance moves much, and up to twice as much as for a usual
    one where it moves it little. What chance alone makes of an example is 1 in such a sum, so that 1/Σh is the
    layer's typical chance. `chance`: [C], or [G, C] for G groups."""
    weight = 1 / (chance + chance.mean(-1, keepdim=True))
    return weight / (weight * chance).sum(-1, keepdim=True)


def channel_sums(weight: Tensor, *values: Tensor) -> Sequence[Tensor | float]:
    """Σ h·x of each, one for each group of [G, C]; of [C] as numbers of Python's where they can be had without waiting,
    for steps with those cost a tenth."""
    if weight.dim() == values[0].dim() == 1 and is_at_hand(values[0]):
        sums: list[float] = torch.mv(torch.stack(values), weight).tolist()
        return sums
    return [(weight * each).sum(-1, keepdim=True) for each in values]


class CalibrationAccumulator:
    """Collects a `Calibration` batch by batch, exactly whatever the batches are (Chan et al.), in
    double precision."""

    def __init__(self) -> None:
        self.size = 0
        self._mean = torch.zeros(())
        self._scatter = torch.zeros(())
        self._within = torch.zeros(())
        self._pairs = 0

    def update(self, mean: Tensor, square: Tensor) -> None:
        """`mean` and `square`: [N, C], the moments of each example."""
        pairs = torch.stack([mean, square]).double()
        n = pairs.shape[1]
        if n == 0:
            return
        batch_mean = pairs.mean(1)
        centred = pairs - batch_mean[:, None]
        scatter = _scatter(centred)
        if self.size == 0:
            self._mean, self._scatter = batch_mean, scatter
        else:
            delta = batch_mean - self._mean
            between = torch.stack([*(delta**2), delta[0] * delta[1]])
            self._scatter = self._scatter + scatter + between * (self.size * n / (self.size + n))
            self._mean = self._mean + delta * (n / (self.size + n))
        self.size += n

    def update_classes(self, mean: Tensor, square: Tensor, classes: Tensor) -> None:
        """The same moments once the classes [N] of the examples are predicted. What examples of a class in one batch
        differ by is enough, so that nothing has to be kept for each class."""
        pairs = torch.stack([mean, square]).double()
        _, place, sizes = classes.unique(return_inverse=True, return_counts=True)
        centres = torch.zeros_like(pairs[:, : len(sizes)]).index_add_(1, place, pairs) / sizes[:, None]
        self._within = self._within + _scatter(pairs - centres[:, place])
        self._pairs += len(classes) - len(sizes)

    def result(self, eps: float, stored: Statistics | None) -> Calibration:
        """What is known by now, with this layer's chance alone for `network`; `eps` is added to the variance."""
        mean, square = self._mean
        var = (square - mean * mean).clamp(min=0)
        total = _chance(self._scatter / self.size, mean, var + eps)
        weight = channel_weights(total)
        between = USUAL_CLASS_SHARE
        if self._pairs:
            within = _chance(self._within / self._pairs, mean, var + eps)
            between = min(max(0.0, 1 - float(weight @ within)), 1.0)
        found = Calibration(self.size, float(1 / weight.sum()), between, 0.0, mean, var, weight)
        if stored is not None:
            _, squared, second = found.against(Statistics(*(t.to(mean) for t in stored)), eps)
            found = found._replace(offset=float(found.apart(squared, second)))
        return found.to(torch.float32)


def _chance(scatter: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """From the variances of the examples' means and mean squares and their covariance, [3, C]."""
    mean_var, square_var, covariance = scatter.unbind()
    about_mean = (square_var - 4 * mean * covariance + 4 * mean * mean * mean_var).clamp(min=0)
    return (mean_var / scale + about_mean / (2 * scale * scale)).clamp(min=LEAST_CHANCE)


def _scatter(centred: Tensor) -> Tensor:
    """Of [2, N, C] the sums of squares of both and of their product, [3, C]."""
    return torch.stack([*(centred**2).sum(1), (centred[0] * centred[1]).sum(0)])
