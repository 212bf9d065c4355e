"""`ema`: an exponential moving average over the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from predbn.common import AdaptationError

from ..observation import Observation
from ..statistics import Statistics, mix
from .base import Strategy, check_momentum, load_statistics, save_statistics


@dataclass(frozen=True)
class Ema(Strategy):
    """μ_t = (1 − momentum)·μ_{t−1} + momentum·μ_b, and likewise σ²; batch t is normalised with μ_t and σ_t².

    `start` says where the average begins: at the "source" statistics, or with the "first" batch, whose statistics are
    then used unchanged. Momentum 1 is `batch`; momentum 0 from the source is `train`.
    """

    name: ClassVar[str] = "ema"
    keeps_state: ClassVar[bool] = True
    works_on_segments: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    momentum: float = 0.1
    start: Literal["source", "first"] = "source"

    def __post_init__(self) -> None:
        check_momentum(self.name, self.momentum, "the weight of the newest batch")
        if self.start not in ("source", "first"):
            raise AdaptationError(f"strategy 'ema' got start={self.start!r}; it is 'source' or 'first'")

    def statistics(self, observation: Observation) -> Statistics:
        state = observation.state
        average = load_statistics(state) or (observation.source if self.start == "source" else None)
        if average is None:
            return save_statistics(state, observation.moments().statistics)
        batch = observation.moments(allow_single_value=self.momentum != 1).statistics
        average = Statistics(average.mean.to(batch.mean), average.var.to(batch.var))
        return save_statistics(state, mix(average, batch, self.momentum))
