"""Accuracy, and accuracy among the first few classes."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_positive, prepare


def ranks(probabilities: Tensor, labels: Tensor) -> Tensor:
    """How many classes come before the label when classes are ordered by falling probability.

    Classes of equal probability come in the order of their index. That makes rank 0 what argmax gives, and
    makes the answer the same on every device, where the order in which `topk` leaves ties is not said.
    """
    own = probabilities.gather(1, labels[:, None])
    before = torch.arange(probabilities.shape[1], device=labels.device) < labels[:, None]
    return ((probabilities > own) | ((probabilities == own) & before)).sum(1)


def accuracy(probabilities: Tensor, labels: Tensor, *, top: int = 1) -> Tensor:
    """The share of examples whose label is among the `top` most probable classes."""
    check_positive("top", top)
    return (ranks(*prepare(probabilities, labels)) < top).double().mean()
