"""Balanced BN of TRIBE (Su et al. 2024, "Towards real-world test-time adaptation: tri-net self-training with balanced
normalization", AAAI); UniTTA builds on it.

A layer keeps (μ_c, σ_c²) for each class c. Its statistics are those of a stream in which all classes are equally
frequent, whatever the batch holds:

    μ = mean over c of μ_c,    σ² = mean over c of σ_c² + variance over c of μ_c.

A batch is predicted with these. Its n_c examples predicted as c, with the mean m and the variance v, then move class c
by the weight w = min(η·n_c, 1):

    μ_c ← μ_c + w·(m − μ_c),    σ_c² ← (1 − w)·σ_c² + w·v + w·(1 − w)·(m − μ_c)².

All classes begin with the source's statistics. η = max(0.01, 0.0005·classes) and, for CIFAR-10, γ = 0 (no class moves
with another) as published. TRIBE also trains the network with pseudo-labels; here it is the normalisation alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from predbn.norm import Observation, Statistics, pool_central_moments

from .base import AdaptedNetwork, PeerStrategy, inputs_of
from .network import PixelNetwork


class PredictedClasses:
    """The classes [N] that were predicted for a batch; None while it is being predicted."""

    labels: Tensor | None = None


@dataclass(frozen=True)
class BalancedStatistics(PeerStrategy):
    """The statistics of a balanced stream; they learn from a batch as soon as `predicted` knows its classes."""

    name: ClassVar[str] = "balanced_bn"
    keeps_state: ClassVar[bool] = True
    classes: int
    predicted: PredictedClasses = field(default_factory=PredictedClasses)

    def statistics(self, observation: Observation) -> Statistics:
        state, source = observation.state, observation.source
        if "class_means" not in state:
            state["class_means"], state["class_vars"] = (t.expand(self.classes, -1) for t in source)
        if self.predicted.labels is not None:
            state["class_means"], state["class_vars"] = self._updated(observation, self.predicted.labels)
        means, variances = state["class_means"], state["class_vars"]
        return Statistics(means.mean(0), variances.mean(0) + means.var(0, correction=0))

    def _updated(self, observation: Observation, labels: Tensor) -> tuple[Tensor, Tensor]:
        var, mean = torch.var_mean(inputs_of(observation).flatten(2), 2, correction=0)
        membership = F.one_hot(labels, self.classes).to(mean).T
        counts = membership.sum(1, keepdim=True)
        share = membership / counts.clamp(min=1)
        class_means = share @ mean
        class_vars = share @ (var + (mean - class_means[labels]) ** 2)
        weight = (max(0.01, 0.0005 * self.classes) * counts).clamp(max=1)
        before = observation.state["class_means"], observation.state["class_vars"]
        return pool_central_moments(before, (class_means, class_vars), weight)


class BalancedBN(AdaptedNetwork):
    """Predicts a batch, then shows it to the network once more with the predicted classes."""

    def __init__(self, network: PixelNetwork) -> None:
        strategy = BalancedStatistics(network.classes)
        super().__init__(network, strategy)
        self._predicted = strategy.predicted

    def __call__(self, images: Tensor) -> Tensor:
        logits = super().__call__(images)
        self._predicted.labels = logits.argmax(1)
        try:
            with torch.no_grad():
                super().__call__(images)
        finally:
            self._predicted.labels = None
        return logits
