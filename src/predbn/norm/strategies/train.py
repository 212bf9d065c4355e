"""`train`: the statistics stored in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy


@dataclass(frozen=True)
class Train(Strategy):
    """μ = μ_s, σ² = σ²_s: what the model did before. Useful beside a changed eps, and as the baseline.

    A layer that never tracked statistics goes on using those of its batch.
    """

    name: ClassVar[str] = "train"
    works_in_groups: ClassVar[bool] = True
    varies: ClassVar[bool] = False

    @property
    def is_identity(self) -> bool:
        return True

    def statistics(self, observation: Observation) -> Statistics:
        return observation.source or observation.moments().statistics
