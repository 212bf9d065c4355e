"""`frozen`: the statistics of the first batch of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from predbn.common import AdaptationError

from ..observation import Observation
from ..statistics import Moments, Statistics, pool
from .base import Strategy
from .state import keep, recall


@dataclass(frozen=True)
class Frozen(Strategy):
    """μ, σ² = the pooled moments of the first `batches` batches, kept for all later ones until `reset`.

    While they are being collected, each batch is normalised with what has been pooled so far, itself
    included. After that a layer costs what it cost before, and the model can be folded. Where one pass
    calls a layer several times, all its calls are pooled.
    """

    name: ClassVar[str] = "frozen"
    keeps_state: ClassVar[bool] = True
    varies: ClassVar[bool] = False
    batches: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.batches, int) or self.batches < 1:
            raise AdaptationError(
                f"strategy 'frozen' got batches={self.batches!r}; it is how many batches to pool, 1 or more"
            )

    def statistics(self, observation: Observation) -> Statistics:
        state = observation.state
        so_far = recall(state)
        if so_far is not None and (state.get("done") or observation.count_pass() > self.batches):
            state["done"] = 1
            return so_far
        if so_far is None:
            observation.count_pass()
            pooled = observation.moments()
        else:
            before = Moments(*so_far, values=state["values"], size=state["size"])
            pooled = pool(before, observation.moments(defined=False))
        state["values"], state["size"] = pooled.values, pooled.size
        return keep(state, pooled.statistics)

    def settled(self, state: dict[str, Tensor | int]) -> Statistics | None:
        return recall(state)
