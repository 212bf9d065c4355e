"""`auto_stream`: `auto` for a stream, whose past tells more than its newest batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..errors import AdaptationError
from ..kernels import is_at_hand
from ..observation import Observation
from ..statistics import Moments, Statistics, pool
from .auto import Auto
from .state import keep, ordinary, recall


@dataclass(frozen=True)
class AutoStream(Auto):
    """`auto` with the moments of a stream: those of its batches pooled, an example of i batches ago counting

        w = (1 − momentum)ⁱ,    so that n = (Σ w)²/Σ w²

    examples stand behind them. A single image tells little of a shift from chance by itself; in a stream it has
    (2 − momentum)/momentum = 19 to go by in the long run, and 95 in batches of five. Momentum 1 is `auto`; with
    momentum 0 nothing is forgotten. When the stream changes, its memory is off for about 1/momentum batches:
    `predbn.reset` forgets it, `predbn.stream` gives every source its own, `predbn.fold` fixes what stands now.

    skewed, calibrated   as with `auto`
    """

    name: ClassVar[str] = "auto_stream"
    keeps_state: ClassVar[bool] = True
    varies: ClassVar[bool] = False
    works_in_groups: ClassVar[bool] = False
    momentum: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.momentum, int | float) or not 0 <= self.momentum <= 1:
            raise AdaptationError(
                f"strategy 'auto_stream' got momentum={self.momentum!r}; it is what of the past each batch makes "
                "forgotten, from 0 to 1"
            )

    def statistics(self, observation: Observation) -> Statistics:
        source, state = observation.source, observation.state
        moments = self._remembered(state, observation.moments(defined=source is None))
        return keep(state, moments.statistics if source is None else self.believed(observation, source, moments))

    def settled(self, state: dict[str, Tensor | int]) -> Statistics | None:
        return recall(state)

    def _remembered(self, state: dict[str, Tensor | int], batch: Moments) -> Moments:
        """The moments of the stream up to this batch; `state` keeps them, and Σ w and Σ w² beside them."""
        counts, pooled = batch.mean.new_tensor([1.0, 1.0]) * batch.size, batch
        if "counts" in state:
            mean, var, past = (ordinary(state, key).to(batch.mean) for key in ("seen_mean", "seen_var", "counts"))
            left = 1 - self.momentum
            past = past * past.new_tensor([left, left * left])
            pooled = pool(Moments(mean, var, past[0], past[0]), batch._replace(values=batch.size))
            counts = past + counts
        state["seen_mean"], state["seen_var"] = pooled.mean.detach(), pooled.var.detach()
        state["counts"] = counts.detach()
        total, squares = counts.tolist() if is_at_hand(counts) else counts.unbind()
        return Moments(pooled.mean, pooled.var, batch.values, total * total / squares)
