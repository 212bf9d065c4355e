"""What the recipes of all tasks have in common: their checks, their plain form, the drops of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from predbn.common import TrainingError


@dataclass(frozen=True, kw_only=True)
class BaseRecipe:
    """The numbers that every recipe has. `eps` is the ε of the normalisation layers."""

    learning_rate: float
    momentum: float = 0.9
    epochs: int
    batch_size: int
    eps: float = 1e-3

    def __post_init__(self) -> None:
        self._check_positive("learning_rate", "eps")
        self._check_at_least(epochs=1, batch_size=1)
        if not 0 <= self.momentum < 1:
            raise TrainingError(f"momentum is {self.momentum}, but it must be at least 0 and less than 1.")

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for cards and checkpoints."""
        return asdict(self)

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if not 0 < getattr(self, name) < math.inf:
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be finite and greater than 0.")

    def _check_not_negative(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < math.inf:
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be finite and not negative.")

    def _check_at_least(self, **minimums: int) -> None:
        for name, minimum in minimums.items():
            if getattr(self, name) < minimum:
                raise TrainingError(f"{name} is {getattr(self, name)}, but it must be at least {minimum}.")

    def _dropped(self, drops: Iterable[tuple[float, float]], position: float) -> float:
        """The learning rate times the factor of the last drop, (where, factor), at or before a position."""
        factor = 1.0
        for where, value in drops:
            if position >= where:
                factor = value
        return self.learning_rate * factor
