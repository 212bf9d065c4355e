"""Optimisers whose step a CUDA graph can contain: the learning rate is a tensor that is overwritten in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def decay_groups(network: nn.Module, weight_decay: float, scalar_rate: Tensor | None = None) -> list[dict[str, Any]]:
    """Parameter groups in which filters and matrices decay, and vectors (biases, normalisation) do not.

    With `scalar_rate`, scalar parameters form a third group with this learning rate.
    """
    matrices = [p for p in network.parameters() if p.ndim > 1]
    vectors = [p for p in network.parameters() if p.ndim == 1 or (p.ndim == 0 and scalar_rate is None)]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if scalar_rate is not None:
        scalars = [p for p in network.parameters() if p.ndim == 0]
        groups.append({"params": scalars, "weight_decay": 0.0, "lr": scalar_rate})
    return groups


def make_adam(
    parameters: Iterable[Any], learning_rate: Tensor, *, momentum: float, eps: float, decoupled: bool = False
) -> torch.optim.Optimizer:
    """Adam, or AdamW if `decoupled`."""
    return (torch.optim.AdamW if decoupled else torch.optim.Adam)(
        parameters,
        lr=learning_rate,
        betas=(momentum, 0.999),
        eps=eps,
        fused=True,
        capturable=learning_rate.device.type == "cuda",
    )


def make_sgd(parameters: Iterable[Any], learning_rate: Tensor, *, momentum: float) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum; only its fused kernel reads the learning rate from a tensor."""
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, nesterov=True, fused=True)
