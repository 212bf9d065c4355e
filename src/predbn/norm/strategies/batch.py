"""`batch`: prediction-time batch normalisation as in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..gpu.rules import Mix, Rule
from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy


@dataclass(frozen=True)
class Batch(Strategy):
    """μ = (1/m) Σ x_i,  σ² = (1/m) Σ (x_i − μ)²  over the m values per channel of the batch being predicted.

    This is the method of Nado et al. (2020). The variance is the biased one, as in training.
    """

    name: ClassVar[str] = "batch"
    works_in_groups: ClassVar[bool] = True
    works_in_streams: ClassVar[bool] = True
    has_fixed_rule: ClassVar[bool] = True

    @property
    def uses_batch_alone(self) -> bool:
        return True

    def statistics(self, observation: Observation) -> Statistics:
        return observation.mixed()

    def rule(self, observation: Observation) -> Rule:
        return Mix()
