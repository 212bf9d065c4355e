"""`ema`: an exponential moving average over the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from predbn.common import AdaptationError

from ..gpu.rules import Mix, Rule
from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy, check_momentum, load_statistics, save_statistics


@dataclass(frozen=True)
class Ema(Strategy):
    """μ_t = (1 − momentum)·μ_{t−1} + momentum·μ_b, and likewise σ²; batch t is normalised with μ_t and σ_t².

    `start` says where the average begins: at the "source" statistics, or with the "first" batch, whose statistics are
    then used unchanged. Momentum 1 is `batch`; momentum 0 from the source is `train`.
    """

    name: ClassVar[str] = "ema"
    keeps_state: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    works_in_streams: ClassVar[bool] = True
    has_fixed_rule: ClassVar[bool] = True
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
        return save_statistics(state, observation.mixed(average, self.momentum))

    def rule(self, observation: Observation) -> Rule | None:
        state = observation.state_in_place()
        if state is not None and "mean" in state:
            return Mix(Statistics(state["mean"], state["var"]), self.momentum, in_place=True)  # type: ignore[arg-type]
        average = load_statistics(observation.state) or (observation.source if self.start == "source" else None)
        return None if average is None else Mix(average, self.momentum)

    def save(self, observation: Observation, rule: Rule, statistics: Statistics) -> None:
        save_statistics(observation.state, statistics)
