"""Median and MAD: the robust statistics of the textbooks (Rousseeuw and Croux 1993, "Alternatives to the median
absolute deviation", JASA) in place of mean and variance, mixed with the source as `prior` does:

    η = median of x,    s = 1.4826·median of |x − η|,
    μ = n/(n + N)·η + N/(n + N)·μ_s,    σ² = n/(n + N)·s² + N/(n + N)·σ_s².

1.4826 makes s the standard deviation of normal data. The MedBN paper has the median and the MAD, unscaled and unmixed,
as an ablation. N = 16 is that of `prior` and not published for this rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from predbn.norm import Observation, Statistics

from .base import PeerStrategy, values_of

NORMAL_MAD = 1.4826
"""The standard deviation of a normal distribution over its MAD."""


@dataclass(frozen=True)
class MedianMAD(PeerStrategy):
    """Median and squared MAD of the batch; the source counts as N examples."""

    name: ClassVar[str] = "median_mad"
    N: float = 16

    works_on_segments: ClassVar[bool] = True

    def statistics(self, observation: Observation) -> Statistics:
        x, source = values_of(observation), observation.source
        median = x.median(-1).values
        mad = (x - median[..., None]).abs().median(-1).values
        weight = observation.size / (observation.size + self.N)
        var = (NORMAL_MAD * mad).square()
        return Statistics(torch.lerp(source.mean, median, weight), torch.lerp(source.var, var, weight))
