"""One count of the batches for all batch norm layers of a network.

A batch norm layer counts the batches it has seen, which on a GPU is a launch for each layer and step. With a fixed
momentum the count has no effect on the running statistics, so that all layers can be counted by one launch.
"""

from __future__ import annotations

from types import MethodType

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def share_batch_count(network: nn.Module) -> Tensor:
    """Make the counts of all batch norm layers with a momentum parts of one tensor, to which each step has to add 1.

    The state dict has the same names and values as before.
    """
    layers = [
        module
        for module in network.modules()
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
        and module.num_batches_tracked is not None
        and module.momentum is not None
    ]
    device = next(network.parameters()).device
    counts = torch.tensor([int(layer.num_batches_tracked or 0) for layer in layers], dtype=torch.int64, device=device)
    for layer, count in zip(layers, counts, strict=True):
        layer.num_batches_tracked = count
        layer.forward = MethodType(_normalise, layer)  # type: ignore[method-assign]
    return counts


def _normalise(layer: nn.BatchNorm2d, input: Tensor) -> Tensor:
    """What the layer computes, without its count."""
    return F.batch_norm(
        input,
        layer.running_mean,
        layer.running_var,
        layer.weight,
        layer.bias,
        layer.training,
        layer.momentum or 0.0,
        layer.eps,
    )
