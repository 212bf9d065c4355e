"""What a training run on ImageNet is told: the paper's recipe."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from predbn.common import TrainingError
from predbn.models import IMAGENET_PREPROCESSING as IMAGENET
from predbn.models import Preprocessing

__all__ = ["DROPS", "ImageNetRecipe"]

DROPS = ((30 / 90, 0.1), (60 / 90, 0.01), (80 / 90, 0.001))
"""From which fraction of the epochs on the learning rate is multiplied by what: epochs 30, 60 and 80 of 90."""


@dataclass(frozen=True)
class ImageNetRecipe:
    """SGD with Nesterov's momentum on ResNet-50 v1, batch 512, 90 epochs, 5 of them warm-up, three drops.

    The paper gives the ranges it searched for the learning rate and the momentum, but not what it found, and no weight
    decay: these are the usual ones of ResNet-50 (0.1 for every 256 images of a batch, 0.9, 1e-4 on filters and
    matrices). `eps` is the ε of the normalisation layers, `size` the side of the pictures. `batch_size` is that of all
    GPUs together; each normalises with the statistics of its own share.
    """

    learning_rate: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 1e-4
    epochs: int = 90
    warm_up: int = 5
    batch_size: int = 512
    eps: float = 1e-5
    size: int = 224

    def __post_init__(self) -> None:
        for name in ("learning_rate", "eps"):
            if not 0 < getattr(self, name) < math.inf:
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be greater than 0.")
        if not 0 < self.momentum < 1:
            raise TrainingError(f"momentum is {self.momentum}, but Nesterov's is greater than 0 and less than 1.")
        if not 0 <= self.weight_decay < math.inf:
            raise TrainingError(f"weight_decay is {self.weight_decay}, but it must not be negative.")
        for name, least in (("epochs", 1), ("warm_up", 0), ("batch_size", 1), ("size", 1)):
            if getattr(self, name) < least:
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be at least {least}.")

    def rate(self, epochs_done: float) -> float:
        """The learning rate after so many epochs, parts of one counted: from 0 in a straight line, then in steps."""
        if epochs_done < self.warm_up:
            return self.learning_rate * epochs_done / self.warm_up
        factor = 1.0
        for fraction, value in DROPS:
            if epochs_done >= fraction * self.epochs - 1e-9:
                factor = value
        return self.learning_rate * factor

    @property
    def preprocessing(self) -> Preprocessing:
        """What the network takes; for validation pictures the same margin at every size, 256 to 224."""
        return replace(IMAGENET, size=(self.size, self.size), resize=round(self.size * 256 / 224))

    def describe(self) -> dict[str, Any]:
        """The same as plain data, for cards and checkpoints."""
        return asdict(self)
