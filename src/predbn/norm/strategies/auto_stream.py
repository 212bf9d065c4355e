"""`auto_stream`: `auto` for a stream, whose past tells more than its newest batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from predbn.common import AdaptationError

from ..kernels import readable_without_sync
from ..observation import Observation
from ..passes import LayerState
from ..statistics import Moments, Statistics, pool
from .auto import Auto
from .base import check_momentum, load_tensor, save_statistics


@dataclass(frozen=True)
class AutoStream(Auto):
    """`auto` with the pooled moments of the stream's batches in place of those of the newest batch.

    An example of i batches ago counts w = (1 − momentum)ⁱ, so that the moments are worth n = (Σ w)²/Σ w² examples. By
    itself, a single image hardly allows to tell a shift from chance; in a stream of single images n grows to
    (2 − momentum)/momentum = 19, and to 95 in batches of five. With momentum 1 this is `auto`; with momentum 0 nothing
    is forgotten. When the data of a stream changes, its memory is wrong for about 1/momentum batches: `predbn.reset`
    clears it, `predbn.stream` gives every source its own, `predbn.fold` fixes the current statistics.

    skewed, calibrated   as for `auto`
    """

    name: ClassVar[str] = "auto_stream"
    keeps_state: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    works_in_groups: ClassVar[bool] = False
    momentum: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passes > 1:
            raise AdaptationError("strategy 'auto_stream' predicts a batch once; only 'auto' takes passes")
        check_momentum(self.name, self.momentum, "the share of the past that each batch makes forgotten")

    def statistics(self, observation: Observation) -> Statistics:
        source, state = observation.source, observation.state
        pooled, n = self._pool_with_past(state, observation.moments(allow_single_value=source is not None))
        if source is not None:
            pooled = self.mixed_statistics(observation, source, pooled, n)
        return save_statistics(state, pooled)

    def _pool_with_past(self, state: LayerState, batch: Moments) -> tuple[Statistics, Tensor | float]:
        """The statistics of the stream including this batch, and n. The state stores them with Σ w and Σ w²."""
        size: Tensor | float = batch.size
        total, squares, pooled = size, size, batch.statistics
        if "counts" in state:
            mean, var, counts = (load_tensor(state, key).to(batch.mean) for key in ("seen_mean", "seen_var", "counts"))
            past, past_squares = counts.tolist() if readable_without_sync(counts) else counts.unbind()
            past = (1 - self.momentum) * past
            total, squares = past + size, (1 - self.momentum) ** 2 * past_squares + size
            pooled = pool(Moments(mean, var, past, past), batch._replace(values=batch.size)).statistics
        state["seen_mean"], state["seen_var"] = pooled.mean.detach(), pooled.var.detach()
        state["counts"] = torch.stack([torch.as_tensor(count).to(batch.mean) for count in (total, squares)])
        return pooled, total * total / squares
