"""The paper's recipe for the Criteo network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from predbn.common import TrainingError
from predbn.models import CriteoSizes

from ..cifar10.recipe import DROPS
from ..recipe import BaseRecipe

Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class CriteoRecipe(BaseRecipe):
    """Adam, one epoch, batch 1024, the learning rate dropped at the same fractions of the training as for CIFAR-10.

    `momentum` is Adam's β₁, `adam_eps` its ε. Each step moves the running statistics of the batch norm by
    `norm_momentum`: with 0.01 it takes some hundred steps to forget their initial values, too many for a short
    training. With `patience`, training ends when the validation loss has not fallen for so many epochs; the network
    of the best epoch is kept in any case. `precision` is that of the matrix products on a GPU.
    """

    learning_rate: float = 1e-3
    adam_eps: float = 1e-7
    epochs: int = 1
    batch_size: int = 1024
    patience: int | None = None
    norm_momentum: float = 0.01
    precision: Precision = "fp32"
    sizes: CriteoSizes = field(default_factory=CriteoSizes)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("adam_eps")
        self._check_at_least(batch_size=2)  # a batch norm has no variance of a single row
        if self.patience is not None:
            self._check_at_least(patience=1)
        if not 0 < self.norm_momentum <= 1:
            raise TrainingError(f"norm_momentum is {self.norm_momentum}, but it must be above 0 and at most 1.")
        if self.precision not in get_args(Precision):
            raise TrainingError(f"precision is {self.precision!r}, but it must be {', '.join(get_args(Precision))}.")

    def learning_rate_at(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0 over all epochs, out of all steps of the training."""
        return self._dropped(((round(fraction * steps), factor) for fraction, factor in DROPS), step)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "sizes": self.sizes.to_dict()}
