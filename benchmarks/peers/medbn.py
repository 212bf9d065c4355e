"""MedBN (Park et al. 2024, "MedBN: Robust test-time adaptation against malicious test samples", CVPR).

The median of all values of a channel takes the place of their mean, also in the variance:

    η = median over N·H·W of x,    ρ² = mean over N·H·W of (x − η)².

A minority of rows moves the median little. It can still inflate the variance. Of an even number of values the lower
middle one is the median, as in the published implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from predbn.norm import Observation, Statistics

from .base import PeerStrategy, values_of


@dataclass(frozen=True)
class MedBN(PeerStrategy):
    """The median of the batch, and the mean square about it. There is nothing to choose."""

    name: ClassVar[str] = "medbn"

    works_on_segments: ClassVar[bool] = True

    def statistics(self, observation: Observation) -> Statistics:
        x = values_of(observation)
        median = x.median(-1).values
        return Statistics(median, (x - median[..., None]).square().mean(-1))
