"""`auto`: as much of the batch as is not chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..calibration import LEAST_CHANCE, USUAL_CLASS_SHARE, Calibration, channel_sums, channel_weights
from ..kernels import has_gpu_kernels
from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy

_KEPT = 1 / 5
"""However large the shift is, the batch is mixed with up to V²/5 source examples: 5 for ResNet-20, 37 for ResNet-50
and 88 for EfficientNet-Lite0."""
_CLASSES = 2.0
"""What lies between classes counts twice where a batch may be of one: once, it still moves every layer a little."""
_STORED_EXAMPLES = 8
"""How many examples the stored statistics count for where they stand in for clean data: augmentation has moved them by
about as much as chance moves those of so few (measured on networks for CIFAR-10 and ImageNet)."""
_USUAL_CHANCE = 0.25
"""The chance of an example in a layer, where calibration has not told: 0.23 in ResNet-20, 0.26 in ResNet-50."""
RANGE = 1e-12, 1e30
"""Where what is seen stays, so that nothing divides by zero or becomes infinite."""


@dataclass(frozen=True)
class Auto(Strategy):
    """`prior` with an N that the batch itself tells: the batch's n examples are mixed with N of the source.

    A layer compares its batch with clean source data, which `calibrate` has looked at: z² = (μ_b − μ_c)²/σ_c²
    and r = (σ_b² + (μ_b − μ_c)²)/σ_c², its mean squares about μ_c. Single source examples vary in these by t
    (`Calibration`), so that a batch of n, beside M calibration examples, differs by chance alone by t·(1/n + 1/M).
    In sums over the channels with weights h for which Σ h·t = 1,

        s = (1/n + 1/M) / Σ h·(z² + (r − 1)²/2)

    is what chance explains of what is seen: 1 on average where nothing has shifted, and the less the more has. With V
    the sum of typical t over all layers of the network, for chance comes in at every layer and adds up,

        N/n = s·(1 + s)² + V²/(5·(n + 1)),    k = n/(n + N).

    Where nothing has shifted k is a fifth at most; the larger the shift, the less of the source is needed, but never
    less than the chance of the whole network asks for. A mixture of 1 − k of the source and k of the batch has

        μ_m = μ_c + k·(μ_b − μ_c),    σ_m²/σ_c² = g = (1 − k)·(1 + k·z²) + k·σ_b²/σ_c².

    What all channels share is known better than what each does. In an image of low contrast all are smaller, and the
    source is first scaled (`_shared_scale`), by a² = exp(q·ℓ), ℓ being the mean of log r, or 0 where that is positive,
    and ω its variance over ℓ²:

        q = 1/(1 + s_ℓ·(1 + s_ℓ)² + ω·V²/(5·(n + 1))),    s_ℓ = (1/n + 1/M) / Σ h·ℓ²/2;

    z² and r above are over a², g is times a², and μ_m = μ_b − a·(1 − k)·(μ_b − μ_c), so that what remains of the
    difference weighs no more than it did.

    Stored statistics and clean data differ before any shift: augmentation left an offset between them, of the size o
    (`Calibration.offset`), of which f stays, on the mixture's own scale:

        μ = μ_m + f·√g·(μ_s − μ_c),    σ² = g·(σ_c² + f·(σ_s² − σ_c²)),    f = 1 − k·e/(e + o),

    e being what is seen beyond chance: all of it with the source's part of the mixture, and with the batch's as long as
    the shift is small beside it.

    skewed       batches may be of few classes (a sorted stream): what differs between the classes that the model
                 predicts is no news, and is taken off what is seen, twice; a shifted batch is then believed less
    calibrated   False does without calibration, as where there is none: the stored statistics stand for μ_c and
                 σ_c² as if known from M = 8 examples, the batch's own examples tell t, a channel has s·(1 + s)² times
                 its t over the typical one, V is a quarter for each layer, and a quarter of t lies between classes

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
        if observation.source is None:
            return observation.moments().statistics
        batch = observation.moments(defined=False)
        return self.believed(observation, observation.source, batch.statistics, batch.size)

    def believed(self, observation: Observation, source: Statistics, seen: Statistics, n: Tensor | float) -> Statistics:
        """As much of what was seen of n examples as is not chance: those of a batch, or all that a stream remembers."""
        known = observation.calibration if self.calibrated else None
        origin, spread = _stored(observation, source) if known is None else (known.to(source.mean), 1.0)
        sampling, kept = 1 / n + 1 / origin.size, _KEPT * origin.network**2 / (n + 1)
        no_news = _CLASSES * origin.between * (1 - 1 / n) if self.skewed else 0.0
        given = seen, origin, source, observation.eps
        single = source.mean.dtype == torch.float32
        if known is not None and not isinstance(n, Tensor) and single and has_gpu_kernels(seen.mean):
            from .gpu_mixed import mixed as at_once

            return at_once(*given, float(sampling), float(no_news), float(kept))
        return mixed(*given, sampling, no_news, kept, spread)


def mixed(
    batch: Statistics,
    origin: Calibration,
    source: Statistics,
    eps: float,
    sampling: Tensor | float,
    no_news: Tensor | float,
    kept: Tensor | float,
    spread: Tensor | float = 1.0,
) -> Statistics:
    """The stored statistics moved to the mixture. `sampling`: 1/n + 1/M; `no_news`: what to take off what is seen;
    `kept`: V²/(5·(n + 1)); `spread`: of each channel beside the layer's."""
    move, squared, second = origin.against(batch, eps)
    scale = _shared_scale(second, origin.weight, sampling, no_news, kept)
    seen = _within(origin.apart(squared / scale, second / scale) - no_news)
    part = 1 / (1 + spread * _doubt(sampling / seen) + kept)
    shift = _within(seen - sampling)
    left = 1 - part * shift / (shift + origin.offset)
    grown = scale * (1 - part) + part * _plus(second, -part, squared)
    followed = 1 - (1 - part) * scale**0.5
    mean = _plus(_plus(origin.mean, followed, move), left, grown.sqrt() * (source.mean - origin.mean))
    var = grown * (torch.lerp(origin.var, source.var, left) + eps) - eps
    return Statistics(mean, var.clamp(min=0))


def _shared_scale(
    second: Tensor,
    weight: Tensor,
    sampling: Tensor | float,
    no_news: Tensor | float,
    kept: Tensor | float,
) -> Tensor | float:
    """a² from `second`, which is r: how much smaller all channels of a layer are, followed the further the more even
    that is over them. Only smaller: a mean that has moved makes r larger, whatever the scale is."""
    logs = second.log()
    total, level, squares = channel_sums(weight, torch.ones_like(logs), logs, logs * logs)
    level = level / total
    square = _within(level * level)
    uneven = _within(squares / total / square - 1)
    seen = _within(total * square / 2 - no_news)
    followed = level / (1 + _doubt(sampling / seen) + kept * uneven)
    return followed.clamp(max=0).exp() if isinstance(followed, Tensor) else math.exp(min(followed, 0.0))


def _doubt(explained: Tensor | float) -> Tensor | float:
    """s·(1 + s)²: how many source examples go with one of the batch, by what chance explains of what is seen."""
    return explained * (1 + explained) ** 2


def _plus(start: Tensor, times: Tensor | float, step: Tensor) -> Tensor:
    """start + times·step, in one operation."""
    return torch.addcmul(start, times, step) if isinstance(times, Tensor) else torch.add(start, step, alpha=times)


def _within(value: Tensor | float) -> Tensor | float:
    """Kept in `RANGE`."""
    return value.clamp(*RANGE) if isinstance(value, Tensor) else min(max(value, RANGE[0]), RANGE[1])


def _stored(observation: Observation, source: Statistics) -> tuple[Calibration, Tensor]:
    """Without calibration: an example counts as σ²/v independent values, whose mean square varies by 2v/σ²; where the
    batch is a single one, as one value. A variance of few examples may be small by chance, and is taken for
    (n + 1)/(n − 1) of what it is. Also each channel's chance beside the layer's."""
    between = observation.between()
    if between is None:
        chance = torch.full_like(source.var, 2.0)
    else:
        batch = observation.moments()
        chance = 2 * between / (batch.var + observation.eps) * ((batch.size + 1) / (batch.size - 1))
    chance = chance.clamp(min=LEAST_CHANCE)
    weight = channel_weights(chance)
    network = _USUAL_CHANCE * observation.layers
    known = Calibration(_STORED_EXAMPLES, network, USUAL_CLASS_SHARE, 0.0, source.mean, source.var, weight)
    return known, chance * weight.sum(-1, keepdim=True)
