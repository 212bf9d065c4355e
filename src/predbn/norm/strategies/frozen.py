"""`frozen`: the statistics of the first batches of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from predbn.common import AdaptationError

from ..observation import Observation
from ..statistics import Moments, Statistics, pool
from .base import Strategy, load_statistics, load_tensor, save_statistics


@dataclass(frozen=True)
class Frozen(Strategy):
    """μ, σ² = the pooled moments of the first `batches` batches, used for all later batches until `reset`.

    While they are being collected, each batch is normalised with what has been pooled so far, including itself. After
    that a layer costs what it cost before, and the model can be folded. Each layer counts the passes that call it; if
    one pass calls it several times, all its calls are pooled.
    """

    name: ClassVar[str] = "frozen"
    keeps_state: ClassVar[bool] = True
    works_on_segments: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    batches: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.batches, int) or self.batches < 1:
            raise AdaptationError(
                f"strategy 'frozen' got batches={self.batches!r}; it is how many batches to pool, 1 or more"
            )

    def statistics(self, observation: Observation) -> Statistics:
        state = observation.state
        saved = load_statistics(state)
        if saved is not None and ("done" in state or observation.count_pass() > self.batches):
            state["done"] = 1
            return saved
        if saved is None:
            observation.count_pass()
            pooled = observation.moments()
        else:
            earlier = Moments(*saved, values=load_tensor(state, "values"), size=0)
            pooled = pool(earlier, observation.moments(allow_single_value=True))
        state["values"] = _as_counts(pooled.values, pooled.mean)
        return save_statistics(state, pooled.statistics)


def _as_counts(values: Tensor | int, like: Tensor) -> Tensor:
    """Numbers of values, [1] or [S, 1]. Only their ratios matter: the dtype of statistics is precise enough."""
    if isinstance(values, Tensor):
        return values.detach().to(like).reshape(*like.shape[:-1], 1)
    return torch.full((*like.shape[:-1], 1), float(values), dtype=like.dtype, device=like.device)
