"""`vanilla`: the model as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Logits, Method, only


@dataclass(frozen=True)
class Vanilla(Method):
    """p = softmax(z)."""

    name: ClassVar[str] = "vanilla"

    def log_probabilities(self, logits: Logits) -> Tensor:
        return torch.log_softmax(only(logits), 1)
