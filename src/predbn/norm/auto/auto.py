"""`auto`: a mixture of batch and source, like `prior`, with an N that follows from the batch itself.

For one channel of a layer, let

    μ_b, σ_b²   be the statistics of the batch, which has n examples,
    μ_s, σ_s²   the statistics stored in training,
    μ_c, σ_c²   the statistics of clean source data, which `calibrate` measured on M examples,
    t           chance: how far a single source example differs from them although nothing has shifted,
    h           the weight of the channel, with Σ h·t = 1 over the channels,
    V           the typical t of a layer, summed over all layers of the network,
    b           the share of t that lies between the classes that the model predicts.

`Calibration` holds μ_c, σ_c², M, h and V. eps is added to all variances.

0. With several passes only (`predictor.py`): which classes does the batch hold? The pass before has predicted class k
   for the share π_k of the examples, with the mean confidence 1 − u. Clean data with these classes has the statistics
   μ_π, σ_π² instead of μ_c, σ_c². The batch is corrected for the difference (`Calibration.with_source_classes`), and
   chance explains

       (1 − b)·(1/n + Σ π_k²/M_k) + 2·b·u·Σ π_k²    in place of    1/n + 1/M

   in the steps below, where M_k of the M examples had class k: examples of one class differ less, and as far as the
   predictions are in doubt, the classes may be others, as unevenly spread as those that were predicted. The cautious
   pass knows nothing: π is that of the source, and the last term is 2·b.

   More than 128 classes are in groups of similar ones (`class_groups.py`), and π_g, M_g, μ_π and σ_π² are those of the
   groups. Between groups lies the share b_g of t, and chance explains

       (1 − b)/n + (1 − b_g)·Σ π_g²/M_g + 2·b_g·u·Σ π_g² + 2·(b − b_g)·Σ π_k²,

   since few classes of a group may differ from the whole group.

1. How much does chance explain? The batch differs from clean data by

       d = Σ h·(z² + (r − 1)²/2),    z² = (μ_b − μ_c)²/σ_c²,    r = (σ_b² + (μ_b − μ_c)²)/σ_c²,

   where r compares mean squares about μ_c. Chance alone makes d = 1/n + 1/M on average, so it explains the part

       s = (1/n + 1/M)/d

   of the difference. If nothing has shifted, 1/s is 1 on average; the more has shifted, the smaller is s.

2. How much of the source is mixed in? The batch's n examples are mixed with N of the source:

       N/n = s·(1 + s)² + V²/(5·(n + 1)),    k = n/(n + N).

   If nothing has shifted, the batch's weight k is a fifth at most. The larger the shift, the less of the source is
   needed. The second term stays: chance enters at every layer and adds up over the network.

3. The mixture of 1 − k of clean data and k of the batch has

       μ_m = μ_c + k·(μ_b − μ_c),    σ_m²/σ_c² = g = (1 − k)·(1 + k·z²) + k·σ_b²/σ_c².

4. Stored statistics and clean data differ even without a shift, because training images are augmented. This offset has
   the size o (`Calibration.offset`, measured like d). A part f of it stays, on the scale of the mixture:

       μ = μ_m + f·√g·(μ_s − μ_c),    σ² = g·(σ_c² + f·(σ_s² − σ_c²)),    f = 1 − k·e/(e + o),

   where e = d − (1/n + 1/M) is what chance does not explain. The source's part of the mixture keeps the whole offset;
   the batch's part keeps it as long as the shift is small compared to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from predbn.common import AdaptationError

from ..observation import Observation
from ..robust import NARROW
from ..statistics import Statistics
from ..strategies.base import Strategy
from .calibration import DEFAULT_CLASS_SHARE, MIN_CHANCE, Calibration, channel_weights
from .explained import CLASS_FACTOR, Sampling, without_classes

NETWORK_FACTOR = 1 / 5
"""However large the shift is, the batch is mixed with up to V²/5 source examples: 5 for ResNet-20, 37 for ResNet-50
and 88 for EfficientNet-Lite0."""
STORED_SIZE = 8
"""How many examples the stored statistics count for if they replace those of clean data: augmentation has moved them by
about as much as chance moves those of so few (measured on networks for CIFAR-10 and ImageNet)."""
DEFAULT_CHANCE = 0.25
"""The typical chance of a layer without calibration: it is 0.23 in ResNet-20 and 0.26 in ResNet-50."""
LIMITS = 1e-12, 1e30
"""Differences are clamped to this range, so that nothing is divided by zero or becomes infinite."""


@dataclass(frozen=True)
class AutoRule(Strategy):
    """The equations that `auto` and `auto_stream` share. `calibrated=False` ignores the calibration, as if there were
    none (see `_calibration_from_batch`)."""

    works_on_segments: ClassVar[bool] = True
    calibrated: bool = True

    @property
    def calibration(self) -> Literal["needed", "ignored"]:
        return "needed" if self.calibrated else "ignored"

    def clean_data(self, observation: Observation, source: Statistics) -> tuple[Calibration, Tensor | float]:
        """The calibration, or what replaces it, and the chance of each channel relative to the layer's."""
        calibration = observation.calibration
        if calibration is None:
            return _calibration_from_batch(observation, source)
        return calibration.to(source.mean), 1.0

    def mixed_statistics(
        self,
        observation: Observation,
        source: Statistics,
        clean_data: tuple[Calibration, Tensor | float],
        batch: Statistics,
        n: Tensor | float,
        doubt: Tensor | float = 0.0,
    ) -> Statistics:
        """Mix the statistics of n examples with the source; the n examples are a batch, or the past of a stream.

        `doubt` is u, if the statistics were corrected for classes that are in doubt.
        """
        clean, relative_chance = clean_data
        sampling = Sampling(1.0, 1 / clean.size, CLASS_FACTOR * clean.between * doubt)
        composition = observation.composition
        if composition is not None and clean.class_sizes is not None:
            batch, sampling = without_classes(batch, clean, composition, observation.eps)
        network = NETWORK_FACTOR * clean.network**2 / (n + 1)
        return mixture(batch, clean, source, observation.eps, sampling.of(n), network, relative_chance)


@dataclass(frozen=True)
class Auto(AutoRule):
    """As much of the batch as chance does not explain, and the rest from the source.

    The batch's n examples are mixed with N source examples, where N depends on how far the batch differs from clean
    source data, compared to how far chance alone would move it. The equations are at the top of this file and in
    docs/auto.md.

    calibrated   False ignores the calibration, as if there were none
    passes       how often `predbn.AutoPredictor` predicts a batch at most: the classes predicted by one pass tell the
                 next one what clean data of these classes looks like (step 0), so that batches may hold any classes. A
                 layer that is adapted sees one pass, which is enough if batches hold the classes in about the
                 proportions of the source

    A layer that never tracked statistics uses those of its batch.
    """

    name: ClassVar[str] = "auto"
    bounds: ClassVar[float] = NARROW
    passes: int = 1

    def __post_init__(self) -> None:
        passes = self.passes
        if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
            raise AdaptationError(f"strategy 'auto' got passes={passes!r}; it must be an integer, 1 or more")
        if passes > 1 and not self.calibrated:
            raise AdaptationError(
                f"strategy 'auto' got passes={passes} and calibrated=False: several passes need a calibration; "
                "drop one of them"
            )

    @property
    def pass_count(self) -> int:
        return self.passes

    def statistics(self, observation: Observation) -> Statistics:
        if observation.source is None:
            return observation.moments().statistics
        batch = observation.moments(allow_single_value=True)
        clean = self.clean_data(observation, observation.source)
        return self.mixed_statistics(observation, observation.source, clean, batch.statistics, batch.n)


def mixture(
    batch: Statistics,
    clean: Calibration,
    source: Statistics,
    eps: float,
    sampling: Tensor | float,
    network: Tensor | float,
    relative_chance: Tensor | float = 1.0,
) -> Statistics:
    """Steps 1 to 4. Names are those of the equations.

    sampling          1/n + 1/M
    network           V²/(5·(n + 1))
    relative_chance   t of each channel over the layer's typical t; s·(1 + s)² is multiplied by it
    """
    delta, z2, r = clean.compare(batch, eps)
    d = _clamp(clean.difference(z2, r))
    s = sampling / d
    k = 1 / (1 + relative_chance * s * (1 + s) ** 2 + network)
    e = _clamp(d - sampling)
    f = 1 - k * e / (e + clean.offset)
    g = 1 - k + k * add_scaled(r, -k, z2)
    mixed_mean = add_scaled(clean.mean, k, delta)
    mean = add_scaled(mixed_mean, f, g.sqrt() * (source.mean - clean.mean))
    var = g * (torch.lerp(clean.var, source.var, f) + eps) - eps
    return Statistics(mean, var.clamp(min=0))


def add_scaled(start: Tensor, factor: Tensor | float, step: Tensor) -> Tensor:
    """start + factor·step, in one operation."""
    return torch.addcmul(start, factor, step) if isinstance(factor, Tensor) else torch.add(start, step, alpha=factor)


def _clamp(value: Tensor | float) -> Tensor | float:
    return value.clamp(*LIMITS) if isinstance(value, Tensor) else min(max(value, LIMITS[0]), LIMITS[1])


def _calibration_from_batch(observation: Observation, source: Statistics) -> tuple[Calibration, Tensor]:
    """What replaces the calibration if there is none, and the chance of each channel relative to the layer's.

    The stored statistics stand for μ_c and σ_c², as if measured on M = 8 examples, without an offset. V is a quarter
    per layer, and a quarter of t lies between classes. t comes from the variance v of the means of the batch's own
    examples: an example counts as σ²/v independent values, whose mean square varies by 2v/σ², so that t = 2v/σ². A
    single example counts as one value. A variance of few examples may be small by chance and is multiplied by
    (n + 1)/(n − 1).
    """
    v = observation.example_mean_variance()
    if v is None:
        chance = torch.full_like(source.var, 2.0)
    else:
        batch = observation.moments(allow_single_value=True)
        n = batch.n
        others = (n - 1).clamp(min=1) if isinstance(n, Tensor) else n - 1
        chance = 2 * v / (batch.var + observation.eps) * ((n + 1) / others)
        if isinstance(n, Tensor):  # the number of examples of all processes, or of each stream, which may be one
            chance = torch.where(n > 1, chance, 2.0)
    chance = chance.clamp(min=MIN_CHANCE)
    weight = channel_weights(chance)
    network = DEFAULT_CHANCE * observation.layer_count
    clean = Calibration(STORED_SIZE, network, DEFAULT_CLASS_SHARE, 0.0, source.mean, source.var, weight)
    return clean, chance * weight.sum(-1, keepdim=True)
