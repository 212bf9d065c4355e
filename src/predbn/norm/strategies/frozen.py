"""`frozen`: the statistics of the first batch of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from predbn.common import AdaptationError

from ..gpu.rules import Fixed, Rule
from ..observation import Observation
from ..statistics import Moments, Statistics, pool
from .base import Strategy, load_statistics, save_statistics


@dataclass(frozen=True)
class Frozen(Strategy):
    """μ, σ² = the pooled moments of the first `batches` batches, used for all later batches until `reset`.

    While they are being collected, each batch is normalised with what has been pooled so far, including itself. After
    that a layer costs what it cost before, and the model can be folded. Each layer counts the passes that call it; if
    one pass calls it several times, all its calls are pooled.
    """

    name: ClassVar[str] = "frozen"
    keeps_state: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    works_in_streams: ClassVar[bool] = True
    has_fixed_rule: ClassVar[bool] = True
    batches: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.batches, int) or self.batches < 1:
            raise AdaptationError(
                f"strategy 'frozen' got batches={self.batches!r}; it is how many batches to pool, 1 or more"
            )

    def statistics(self, observation: Observation) -> Statistics:
        state = observation.state
        saved = load_statistics(state)
        if saved is None:
            observation.count_pass()
            pooled = observation.moments()
        elif "done" in state or observation.count_pass() > self.batches:
            state["done"] = 1
            return saved
        else:
            earlier = Moments(*saved, values=state["values"], size=state["size"])
            pooled = pool(earlier, observation.moments(allow_single_value=True))
        state["values"], state["size"] = pooled.values, pooled.size
        return save_statistics(state, pooled.statistics)

    def rule(self, observation: Observation) -> Rule | None:
        if observation.has_streams or "done" not in observation.state:
            return None
        saved = load_statistics(observation.state)
        return None if saved is None else Fixed(saved)
