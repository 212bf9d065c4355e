"""What a training run is told: the paper's CIFAR-10 recipe and the numbers that its search tunes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from predbn.common import TrainingError
from predbn.models import find_normalisation as find

__all__ = ["DROPS", "Recipe"]

DROPS = ((0.4, 0.1), (0.6, 0.01), (0.8, 0.001), (0.9, 0.0005))
"""From which fraction of the epochs on the learning rate is multiplied by what: epochs 40, 60, 80, 90 of 100."""


@dataclass(frozen=True)
class Recipe:
    """Adam on ResNet-20 v1, batch 512, 100 epochs, the learning rate dropped four times.

    `momentum` is Adam's β₁, `adam_eps` its ε. `weight_decay` acts on filters and matrices; the paper states none, but
    its network is "standard", and the standard one is trained with it; 0 turns it off. It is added to the gradient
    (L2, ½ weight_decay ‖w‖² in the loss) or, `decoupled`, a step takes lr · weight_decay of the weights away. `eps` is
    the ε of the normalisation layers.
    """

    norm: str = "batch"
    learning_rate: float = 1e-2
    momentum: float = 0.9
    adam_eps: float = 1e-7
    weight_decay: float = 0.0
    decoupled: bool = False
    epochs: int = 100
    batch_size: int = 512
    eps: float = 1e-3

    def __post_init__(self) -> None:
        find(self.norm)
        for name in ("learning_rate", "adam_eps", "eps"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be greater than 0.")
        if not 0 <= self.momentum < 1:
            raise TrainingError(f"momentum is {self.momentum}, but it must be at least 0 and less than 1.")
        if not 0 <= self.weight_decay < math.inf:
            raise TrainingError(f"weight_decay is {self.weight_decay}, but it must be finite and not negative.")
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be at least 1.")

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0; the first epoch always has the full one."""
        factor = 1.0
        for fraction, value in DROPS:
            if epoch >= max(1, round(fraction * self.epochs)):
                factor = value
        return self.learning_rate * factor

    def describe(self) -> dict[str, Any]:
        """The same as plain data, for cards and checkpoints."""
        return asdict(self)
