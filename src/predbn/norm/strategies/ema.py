"""`ema`: an exponential moving average over the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from predbn.common import AdaptationError

from ..observation import Observation
from ..statistics import Statistics, mix
from .base import Strategy
from .state import check_momentum, keep, recall


@dataclass(frozen=True)
class Ema(Strategy):
    """μ_t = (1 − momentum)·μ_{t−1} + momentum·μ_b, and so for σ²; batch t is normalised with μ_t, σ²_t.

    `start` says what stands before the first batch: the "source" statistics, or nothing, so that the
    "first" batch is taken as it is. Momentum 1 is `batch`; momentum 0 from the source is `train`.
    """

    name: ClassVar[str] = "ema"
    keeps_state: ClassVar[bool] = True
    varies: ClassVar[bool] = False
    momentum: float = 0.1
    start: Literal["source", "first"] = "source"

    def __post_init__(self) -> None:
        check_momentum(self.name, self.momentum, "the weight of the newest batch")
        if self.start not in ("source", "first"):
            raise AdaptationError(f"strategy 'ema' got start={self.start!r}; it is 'source' or 'first'")

    def statistics(self, observation: Observation) -> Statistics:
        state = observation.state
        before = self.settled(state) or (observation.source if self.start == "source" else None)
        batch = observation.moments(defined=before is None or self.momentum == 1)
        if before is None:
            after = batch.statistics
        else:
            after = mix(
                Statistics(before.mean.to(batch.mean), before.var.to(batch.var)), batch.statistics, self.momentum
            )
        return keep(state, after)

    def settled(self, state: dict[str, Tensor | int]) -> Statistics | None:
        return recall(state)
