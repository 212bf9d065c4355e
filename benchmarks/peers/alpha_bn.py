"""α-BN (You et al. 2021, "Test-time batch statistics calibration for covariate shift", arXiv 2110.04065).

Every batch is mixed with the source in a fixed proportion, however large it is:

    μ = α·μ_b + (1 − α)·μ_s,    σ² = α·σ_b² + (1 − α)·σ_s² + α·(1 − α)·(μ_b − μ_s)².

The last term makes σ² the variance of the mixture; it is that of TTN (Lim et al. 2023, "TTN: A domain-shift aware batch
normalization in test-time adaptation", ICLR), which learns α for each channel after training. α = 0.1 for the batch, as
in the published comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from predbn.norm import Observation, Statistics, pool_central_moments

from .base import PeerStrategy


@dataclass(frozen=True)
class AlphaBN(PeerStrategy):
    """The mixture of α of the batch with 1 − α of the source."""

    name: ClassVar[str] = "alpha_bn"
    works_on_segments: ClassVar[bool] = True
    alpha: float = 0.1

    def statistics(self, observation: Observation) -> Statistics:
        batch = observation.moments(allow_single_value=True)
        return Statistics(*pool_central_moments(observation.source, batch.statistics, self.alpha))
