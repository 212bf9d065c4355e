"""`auto`: as much of the batch as is not chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..calibration import USUAL_CLASS_SHARE, Calibration
from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy

_CAUTION = 2.0
"""Chance counts twice, as in Akaike's criterion: a difference of its usual size is not to move anything."""
_STORED_EXAMPLES = 8
"""How many examples the stored statistics count for where they stand in for clean data: augmentation has moved them by
about as much as chance moves those of so few (measured on networks for CIFAR-10 and ImageNet)."""


@dataclass(frozen=True)
class Auto(Strategy):
    """The source statistics, moved by what the batch shows beyond chance.

    A layer compares its batch with clean source data, which `calibrate` has looked at: z = (μ_b − μ_c)/σ_c
    and ℓ = log σ_b²/σ_c², the variance taken about the mean that was settled on. Over single source examples
    the mean varies by v, so that of n of them by v/n. With chance counted twice, and N the number of examples
    that μ_c is known from, differences up to

        s = 2·v·(1/n + 1/N)

    are no news, and of those in a layer is kept, as James and Stein do, the part

        k = max(0, 1 − Σ h·s / Σ h·z²)        h = 1/(v + v̄), over the channels;

    and so for ℓ, where v is the variance of an example's mean square about μ_c, relative to σ_c⁴. The stored
    statistics are moved by what is kept, not replaced: with a = exp(k·ℓ/2),

        μ = μ_c + k·σ_c·z + a·(μ_s − μ_c),    σ² = a²·σ_s².

    So the difference that augmentation left between stored statistics and clean data stays, on the batch's
    own scale, and where nothing has shifted nothing moves.

    skewed       batches may be of few classes (a sorted stream): what differs between the classes that the model
                 predicts, the share B of v, is no news either, s = B·v·(1 − 1/n) + 2·v·(1/n + 1/N); a shifted
                 batch is then believed less
    calibrated   False does without calibration, as where there is none: the stored statistics stand for μ_c and
                 σ_c² as if known from N = 8 examples, the batch's own examples tell v, and B is a quarter

    A layer that never tracked statistics uses those of its batch.
    """

    name: ClassVar[str] = "auto"
    works_in_groups: ClassVar[bool] = True
    skewed: bool = False
    calibrated: bool = True

    @property
    def uses_calibration(self) -> bool:
        return self.calibrated

    def statistics(self, observation: Observation) -> Statistics:
        source, eps = observation.source, observation.eps
        if source is None:
            return observation.moments().statistics
        batch = observation.moments(defined=False)
        known = observation.calibration if self.calibrated else None
        origin = _stored(observation, source) if known is None else _measured(known, source, eps)
        classes = 1 - 1 / batch.size if self.skewed else 0.0
        chance = _CAUTION * (1 / batch.size + origin.error)
        difference = batch.mean - origin.mean
        move = difference * _kept(difference * difference / origin.scale, origin.of_mean, classes, chance)
        about = difference - move
        ratio = torch.log((batch.var + about * about + eps) / origin.scale)
        growth = torch.exp(ratio * _kept(ratio * ratio, origin.of_ratio, classes, chance))
        mean = origin.mean + move + growth.sqrt() * (source.mean - origin.mean)
        return Statistics(mean, (growth * (source.var + eps) - eps).clamp(min=0))


class _Spread(NamedTuple):
    """How far single source examples lie from each other: their variance, and what of it lies between classes."""

    total: Tensor
    between: Tensor


class _Origin(NamedTuple):
    """The point that differences are measured from, σ² + eps there, and how examples spread about it."""

    mean: Tensor
    scale: Tensor
    of_mean: _Spread
    of_ratio: _Spread
    error: float


def _measured(known: Calibration, source: Statistics, eps: float) -> _Origin:
    mean, square, *variances = (t.to(source.mean) for t in known[1:])
    total, within = variances[:3], variances[3:]
    scale = (square - mean * mean).clamp(min=0) + eps
    of_mean = _spread(total[0] / scale, within[0] / scale)
    of_ratio = _spread(*(_about(mean, *each).clamp(min=0) / (scale * scale) for each in (total, within)))
    return _Origin(mean, scale, of_mean, of_ratio, 1 / known.size)


def _stored(observation: Observation, source: Statistics) -> _Origin:
    """Without calibration: an example counts as σ²/v independent values, whose log-variance varies by 2v/σ²; where the
    batch is a single one, as one value. A variance of few examples may be small by chance, and is taken for
    (n + 1)/(n − 1) of what it is."""
    between, scale = observation.between(), source.var + observation.eps
    if between is None:
        total = torch.ones_like(scale)
    else:
        batch = observation.moments()
        total = between / (batch.var + observation.eps) * ((batch.size + 1) / (batch.size - 1))
    spread = _Spread(total, USUAL_CLASS_SHARE * total)
    return _Origin(source.mean, scale, spread, _Spread(2 * total, USUAL_CLASS_SHARE * 2 * total), 1 / _STORED_EXAMPLES)


def _about(mean: Tensor, mean_var: Tensor, square_var: Tensor, covariance: Tensor) -> Tensor:
    """Var[q_i − 2·mean·m_i]: that of the examples' mean squares about the mean."""
    return square_var - 4 * mean * covariance + 4 * mean * mean * mean_var


def _spread(total: Tensor, within: Tensor) -> _Spread:
    """The share between classes is that of the whole layer: few pairs of a class do not tell it for a channel."""
    weight = _weight(total)
    share = 1 - (weight * within).mean() / (weight * total).mean().clamp(min=torch.finfo(total.dtype).tiny)
    return _Spread(total, share.clamp(0, 1) * total)


def _kept(squared: Tensor, spread: _Spread, classes: float | Tensor, chance: float | Tensor) -> Tensor:
    """k, one for all channels."""
    tiny = torch.finfo(squared.dtype).tiny
    total, between = spread
    weight = _weight(total)
    expected = (weight * (classes * between + chance * total)).mean(-1, keepdim=True)
    return (1 - expected / (weight * squared).mean(-1, keepdim=True).clamp(min=tiny)).clamp(min=0)


def _weight(total: Tensor) -> Tensor:
    """A channel that chance moves much has less weight, one that it moves little up to twice that of a usual one."""
    return 1 / (1 + total / total.mean(-1, keepdim=True).clamp(min=torch.finfo(total.dtype).tiny))
