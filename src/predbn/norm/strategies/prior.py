"""`prior`: a fixed mixture of the batch and the source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from predbn.common import AdaptationError

from ..observation import Observation
from ..statistics import Statistics, mix
from .base import Strategy


@dataclass(frozen=True)
class Prior(Strategy):
    """μ = n/(n+N)·μ_b + N/(n+N)·μ_s, and likewise σ² (Schneider et al. 2020).

    The source statistics count as N examples next to the n examples of the batch, so a small batch is not trusted
    blindly: N = 0 is `batch`, N = ∞ is `train`. A layer that never tracked statistics has no prior and uses its batch.
    """

    name: ClassVar[str] = "prior"
    works_on_segments: ClassVar[bool] = True
    N: float = 16

    def __post_init__(self) -> None:
        if not isinstance(self.N, int | float) or math.isnan(self.N) or self.N < 0:
            raise AdaptationError(
                f"strategy 'prior' got N={self.N!r}; N is how many examples the source counts for, 0 or more"
            )

    def statistics(self, observation: Observation) -> Statistics:
        source = observation.source
        if source is None or self.N == 0:
            return observation.moments().statistics
        if math.isinf(self.N):
            return source
        batch = observation.moments(allow_single_value=True)
        return mix(source, batch.statistics, batch.n / (batch.n + self.N))
