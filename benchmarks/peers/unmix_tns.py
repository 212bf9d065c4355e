"""UnMix-TNS (Tomar et al. 2024, "Un-mixing test-time normalization statistics: combatting label temporal correlation",
ICLR).

A layer keeps K components (μ_k, σ_k²), which stand for the kinds of examples of a balanced stream. An example with its
own mean m_i and variance v_i belongs to component k with probability

    p_ik = softmax over k of cos(m_i, μ_k)/τ,

replaces that part of it, and is normalised with the mixture of all components:

    μ_ik = (1 − p_ik)·μ_k + p_ik·m_i,    μ_i  = mean over k of μ_ik,
    s_ik = (1 − p_ik)·σ_k² + p_ik·v_i,   σ_i² = mean over k of s_ik + variance over k of μ_ik.

Then the components follow the batch: μ_k ← μ_k + λ·mean over i of p_ik·(m_i − μ_k), and σ_k² likewise with v_i. They
begin at μ_k = μ_s + √(a·K/(K − 1))·σ_s·ζ with standard normal ζ, and σ_k² = (1 − a)·σ_s², so that their mixture has
the source's statistics on average.

As published: K = 16, τ = 0.07, a = 0.5, and λ = 1 − 0.9^(n/64) for batches of n.

The mean of K such components is off by √(a/(K − 1))·σ_s = 0.18·σ_s in a typical channel, and follows a stream slowly.
The wide networks of the paper bear that. A ResNet-20 with its 16 to 64 channels lost 9, 20 and 21 points with three
draws, and 0.7 with 512 components (300 clean images of CIFAR-10, against `train`). Therefore every network gets a draw
of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from predbn.common import derive_seed
from predbn.norm import Observation, Statistics

from .base import PeerStrategy, inputs_of


@dataclass(frozen=True)
class UnMixTNS(PeerStrategy):
    """Statistics for each example, from K running components. The seed draws where they begin."""

    name: ClassVar[str] = "unmix_tns"
    keeps_state: ClassVar[bool] = True
    components: int = 16
    temperature: float = 0.07
    spread: float = 0.5
    momentum: float = 0.1
    seed: int = 0

    def statistics(self, observation: Observation) -> Statistics:
        state = observation.state
        if "component_means" not in state:
            state["component_means"], state["component_vars"] = self._first_components(observation)
        means, variances = state["component_means"], state["component_vars"]
        example_var, example_mean = torch.var_mean(inputs_of(observation).flatten(2), 2, correction=0)
        cosine = F.normalize(example_mean, dim=1) @ F.normalize(means, dim=1).T
        p = (cosine / self.temperature).softmax(1)[..., None]
        mixed_means = torch.lerp(means, example_mean[:, None], p)
        mixed_vars = torch.lerp(variances, example_var[:, None], p)
        rate = 1 - (1 - self.momentum) ** (len(example_mean) / 64)
        state["component_means"] = torch.lerp(means, mixed_means.mean(0), rate).detach()
        state["component_vars"] = torch.lerp(variances, mixed_vars.mean(0), rate).detach()
        return Statistics(mixed_means.mean(1), mixed_vars.mean(1) + mixed_means.var(1, correction=0))

    def _first_components(self, observation: Observation) -> tuple[Tensor, Tensor]:
        mean, var = observation.source
        generator = torch.Generator().manual_seed(derive_seed(self.seed, observation.layer))
        noise = torch.randn(self.components, len(mean), generator=generator).to(mean)
        scale = math.sqrt(self.spread * self.components / (self.components - 1))
        return mean + scale * var.sqrt() * noise, ((1 - self.spread) * var).expand(self.components, -1)
