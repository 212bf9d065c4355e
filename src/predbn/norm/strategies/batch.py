"""`batch`: prediction-time batch normalisation as in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy


@dataclass(frozen=True)
class Batch(Strategy):
    """μ = (1/m) Σ x_i,  σ² = (1/m) Σ (x_i − μ)²  over the m values per channel of the batch being predicted.

    This is the method of Nado et al. (2020). The variance is the biased one, as in training.
    """

    name: ClassVar[str] = "batch"
    works_on_segments: ClassVar[bool] = True

    def statistics(self, observation: Observation) -> Statistics:
        return observation.moments().statistics
