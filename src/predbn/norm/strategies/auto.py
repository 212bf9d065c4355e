"""`auto`: as much of the batch as is not chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..calibration import USUAL_CLASS_SHARE, Calibration, channel_weights
from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy

_CAUTION = 2.0
"""Chance counts twice against a shift, as in Akaike's criterion."""
_KEPT = 3.0
"""However large the shift is, the batch is mixed with 3·V·t source examples: 3 for ResNet-20, 11 for ResNet-50 and 27
for EfficientNet-Lite0."""
_CLASSES = 2.0
"""What lies between classes counts twice where a batch may be of one: once, it still moves every layer a little."""
_STORED_EXAMPLES = 8
"""How many examples the stored statistics count for where they stand in for clean data: augmentation has moved them by
about as much as chance moves those of so few (measured on networks for CIFAR-10 and ImageNet)."""
_USUAL_CHANCE = 0.25
"""The chance of an example in a layer, where calibration has not told: 0.23 in ResNet-20, 0.26 in ResNet-50."""
_RANGE = 1e-12, 1e30
"""Where squared differences stay, so that none divides by zero or becomes infinite."""


@dataclass(frozen=True)
class Auto(Strategy):
    """`prior` with an N that the batch itself tells: the batch's n examples are mixed with N of the source.

    A layer compares its batch with clean source data, which `calibrate` has looked at: z² = (μ_b − μ_c)²/σ_c²
    and u = (σ_b² + (μ_b − μ_c)²)/σ_c² − 1, its second moment about μ_c. Over single source examples these vary
    by t = v + w/2, v the variance of an example's mean over σ_c² and w that of its mean square about μ_c over
    σ_c⁴. A batch of n, beside M calibration examples, differs by chance alone by t·(1/n + 1/M). Over the channels,
    weighted by 1/(t + t̄),

        D = mean of z² + u²/2,    S = mean of t·(1/n + 1/M),    E = D³/(D + S)²:

    what is seen, what chance makes of it, and the shift. With t now the mean, and V the sum of t over all layers of
    the network, for chance comes in at every layer and adds up,

        N = t·(2·(1 + n/M)/E + 3·V),    k = n/(n + N).

    Where nothing has shifted N has no bounds; the larger the shift, the less of the source is needed, but never
    less than what the chance of the whole network asks for. A mixture of 1 − k of the source and k of the batch has

        μ_m = μ_c + k·(μ_b − μ_c),    σ_m²/σ_c² = g = (1 − k)·(1 + k·z²) + k·σ_b²/σ_c².

    The stored statistics are moved as the source's are, not replaced: μ = μ_m + √g·(μ_s − μ_c), σ² = g·σ_s². So the
    difference that augmentation left between stored statistics and clean data stays, on the batch's own scale.

    skewed       batches may be of few classes (a sorted stream): what differs between the classes that the model
                 predicts is no news, and is taken off D, twice; a shifted batch is then believed less
    calibrated   False does without calibration, as where there is none: the stored statistics stand for μ_c and
                 σ_c² as if known from M = 8 examples, the batch's own examples tell t, here that of each channel by
                 itself, V is a quarter for each layer, and a quarter of t lies between classes

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
        origin = _stored(observation, source) if known is None else known.to(source.mean)
        sampling, scale = 1 / batch.size + 1 / origin.size, origin.var + eps
        move = batch.mean - origin.mean
        squared = move * move / scale
        growth = squared + (batch.var - origin.var) / scale
        chance = (origin.weight * origin.chance).sum(-1, keepdim=True)
        seen = (origin.weight * (squared + growth * growth / 2)).sum(-1, keepdim=True)
        if self.skewed:
            seen = seen - _CLASSES * origin.between * (1 - 1 / batch.size) * chance
        seen = seen.clamp(*_RANGE)
        shift = (seen / (1 + sampling * chance / seen) ** 2).clamp(min=_RANGE[0])
        noise = origin.chance if known is None else chance
        part = 1 / (1 + noise * (_CAUTION * sampling / shift + _KEPT * origin.network / batch.size))
        grown = 1 + part * (growth - part * squared)
        mean = origin.mean + part * move + grown.sqrt() * (source.mean - origin.mean)
        return Statistics(mean, (grown * (source.var + eps) - eps).clamp(min=0))


def _stored(observation: Observation, source: Statistics) -> Calibration:
    """Without calibration: an example counts as σ²/v independent values, whose mean square varies by 2v/σ²; where the
    batch is a single one, as one value. A variance of few examples may be small by chance, and is taken for
    (n + 1)/(n − 1) of what it is."""
    between = observation.between()
    if between is None:
        chance = torch.full_like(source.var, 2.0)
    else:
        batch = observation.moments()
        chance = 2 * between / (batch.var + observation.eps) * ((batch.size + 1) / (batch.size - 1))
    network = _USUAL_CHANCE * observation.layers
    return Calibration(
        _STORED_EXAMPLES, network, USUAL_CLASS_SHARE, source.mean, source.var, chance, channel_weights(chance)
    )
