"""What a training run of the Criteo network is told."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from predbn.common import TrainingError
from predbn.models import CriteoSizes

from ..recipe import DROPS

__all__ = ["CriteoRecipe", "Precision"]

Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True)
class CriteoRecipe:
    """Adam, one epoch, batch 1024, the learning rate dropped as for CIFAR-10, at the same fractions of the steps.

    `momentum` is Adam's β₁, `adam_eps` its ε, `eps` that of the batch norm. Its running statistics move by
    `norm_momentum` a step: 0.01 takes some hundred steps to forget where they began, too many where there are few.
    With `patience`, training ends when the validation loss has not fallen for so many epochs; the network of the best
    epoch is kept in any case. `precision` is that of the matrix products on a GPU.
    """

    learning_rate: float = 1e-3
    momentum: float = 0.9
    adam_eps: float = 1e-7
    epochs: int = 1
    batch_size: int = 1024
    patience: int | None = None
    eps: float = 1e-3
    norm_momentum: float = 0.01
    precision: Precision = "fp32"
    sizes: CriteoSizes = field(default_factory=CriteoSizes)

    def __post_init__(self) -> None:
        for name in ("learning_rate", "adam_eps", "eps"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be greater than 0.")
        if not 0 <= self.momentum < 1:
            raise TrainingError(f"momentum is {self.momentum}, but it must be at least 0 and less than 1.")
        if not 0 < self.norm_momentum <= 1:
            raise TrainingError(f"norm_momentum is {self.norm_momentum}, but it must be above 0 and at most 1.")
        for name, least in (("epochs", 1), ("batch_size", 2), ("patience", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise TrainingError(f"{name} is {value}, but it must be at least {least}.")
        if self.precision not in get_args(Precision):
            raise TrainingError(f"precision is {self.precision!r}, but it must be {', '.join(get_args(Precision))}.")

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step out of all that are to be made, counted from 0."""
        factor = 1.0
        for fraction, value in DROPS:
            if step >= round(fraction * steps):
                factor = value
        return self.learning_rate * factor

    def describe(self) -> dict[str, Any]:
        """The same as plain data, for cards and checkpoints."""
        return {**asdict(self), "sizes": self.sizes.to_dict()}
