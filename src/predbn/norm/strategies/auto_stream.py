"""`auto_stream`: `auto` for a stream, whose past tells more than its newest batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..kernels import is_at_hand
from ..observation import Observation
from ..statistics import Moments, Statistics, pool
from .auto import Auto
from .state import check_momentum, keep, ordinary, recall


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
        check_momentum(self.name, self.momentum, "what of the past each batch makes forgotten")

    def statistics(self, observation: Observation) -> Statistics:
        source, state = observation.source, observation.state
        seen, n = self._remembered(state, observation.moments(defined=source is None))
        return keep(state, seen if source is None else self.believed(observation, source, seen, n))

    def settled(self, state: dict[str, Tensor | int]) -> Statistics | None:
        return recall(state)

    def _remembered(self, state: dict[str, Tensor | int], batch: Moments) -> tuple[Statistics, Tensor | float]:
        """The statistics of the stream up to this batch and n; `state` keeps them, and Σ w and Σ w² beside them."""
        size: Tensor | float = batch.size
        total, squares, seen = size, size, batch.statistics
        if "counts" in state:
            mean, var, counts = (ordinary(state, key).to(batch.mean) for key in ("seen_mean", "seen_var", "counts"))
            past, past_squares = counts.tolist() if is_at_hand(counts) else counts.unbind()
            past = (1 - self.momentum) * past
            total, squares = past + size, (1 - self.momentum) ** 2 * past_squares + size
            seen = pool(Moments(mean, var, past, past), batch._replace(values=batch.size)).statistics
        state["seen_mean"], state["seen_var"] = seen.mean.detach(), seen.var.detach()
        state["counts"] = torch.stack([torch.as_tensor(count).to(batch.mean) for count in (total, squares)])
        return seen, total * total / squares
