"""Keeping statistics in a layer's state, and how fast they are forgotten."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import AdaptationError

from ..kernels import is_recorded
from ..statistics import Statistics


def check_momentum(strategy: str, momentum: float, meaning: str) -> None:
    if not isinstance(momentum, int | float) or not 0 <= momentum <= 1:
        raise AdaptationError(f"strategy '{strategy}' got momentum={momentum!r}; it is {meaning}, from 0 to 1")


def keep(state: dict[str, Tensor | int], statistics: Statistics) -> Statistics:
    """Store statistics for later batches, free of this batch's graph, and give back what is to be used
    now."""
    state["mean"], state["var"] = statistics.mean.detach(), statistics.var.detach()
    return statistics


def recall(state: dict[str, Tensor | int]) -> Statistics | None:
    """The statistics stored last, or None."""
    if "mean" not in state:
        return None
    return Statistics(ordinary(state, "mean"), ordinary(state, "var"))


def ordinary(state: dict[str, Tensor | int], key: str) -> Tensor:
    """What was stored in inference mode cannot take part in gradients: outside of it, copy it once."""
    value = state[key]
    assert isinstance(value, Tensor)
    if not is_recorded() and value.is_inference() and not torch.is_inference_mode_enabled():
        value = state[key] = value.clone()
    return value
