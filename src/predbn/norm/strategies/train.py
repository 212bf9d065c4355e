"""`train`: the statistics stored in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy


@dataclass(frozen=True)
class Train(Strategy):
    """μ = μ_s, σ² = σ_s²: what the model did before. It is the baseline, and useful with another eps.

    A layer that never tracked statistics uses those of its batch, as it did before.
    """

    name: ClassVar[str] = "train"
    works_on_segments: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True

    def statistics(self, observation: Observation) -> Statistics:
        return observation.source or observation.moments().statistics
