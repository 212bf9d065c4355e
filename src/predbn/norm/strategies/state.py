"""Keeping statistics in a layer's state."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels import is_recorded
from ..statistics import Statistics


def keep(state: dict[str, Tensor | int], statistics: Statistics) -> Statistics:
    """Store statistics for later batches, free of this batch's graph and of inference mode, and give
    back what is to be used now."""
    state["mean"], state["var"] = (_lasting(t) for t in statistics)
    return statistics


def recall(state: dict[str, Tensor | int]) -> Statistics | None:
    """The statistics stored last, or None."""
    if "mean" not in state:
        return None
    mean, var = state["mean"], state["var"]
    assert isinstance(mean, Tensor)
    assert isinstance(var, Tensor)
    return Statistics(mean, var)


def _lasting(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if is_recorded() or not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()
