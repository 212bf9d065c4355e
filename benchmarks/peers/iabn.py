"""IABN, the normalisation of NOTE (Gong et al. 2022, "NOTE: Robust continual test-time adaptation against temporal
correlation", NeurIPS).

An example's own mean m_i and variance v_i replace the stored ones as far as sampling L positions cannot explain the
difference:

    μ_i  = μ_s  + ψ(m_i − μ_s,  k·√(σ_s²/L)),
    σ_i² = σ_s² + ψ(v_i − σ_s², k·σ_s²·√(2/(L − 1))),

where ψ(d, t) = sign(d)·max(|d| − t, 0) is soft shrinkage, v_i is the unbiased variance and eps is added to σ_s² in the
thresholds. k = 4 as published. NOTE trains its networks with this layer, and also averages the statistics over a
memory; here it is the layer alone in networks that were trained with batch normalisation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from predbn.norm import Observation, Statistics

from .base import PeerStrategy, inputs_of


@dataclass(frozen=True)
class IABN(PeerStrategy):
    """Statistics for each example; k is how many standard errors of a difference count as chance."""

    name: ClassVar[str] = "iabn"
    k: float = 4.0

    def statistics(self, observation: Observation) -> Statistics:
        x, source = inputs_of(observation).flatten(2), observation.source
        positions = x.shape[2]
        if positions == 1:
            return source
        var, mean = torch.var_mean(x, 2)
        scale = source.var + observation.eps
        mean = source.mean + _shrink(mean - source.mean, self.k * (scale / positions).sqrt())
        var = source.var + _shrink(var - source.var, self.k * scale * math.sqrt(2 / (positions - 1)))
        return Statistics(mean, var.clamp(min=0))


def _shrink(difference: Tensor, threshold: Tensor) -> Tensor:
    return difference - difference.clamp(-threshold, threshold)
