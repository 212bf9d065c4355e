"""The paper's CIFAR-10 recipe, and the numbers for it that the recorded searches found."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files

from predbn.models import find_normalisation

from ..recipe import BaseRecipe

DROPS = ((0.4, 0.1), (0.6, 0.01), (0.8, 0.001), (0.9, 0.0005))
"""From these fractions of the training on, the learning rate has these factors: epochs 40, 60, 80, 90 of 100."""


@dataclass(frozen=True, kw_only=True)
class Cifar10Recipe(BaseRecipe):
    """Adam on ResNet-20 v1, batch 512, 100 epochs, the learning rate dropped four times.

    `momentum` is Adam's β₁, `adam_eps` its ε. `weight_decay` acts on filters and matrices. The paper does not mention
    any, but calls its network "standard", and the standard one is trained with it; 0 turns it off. It is added to the
    gradient (L2: ½ weight_decay ‖w‖² in the loss) or, if `decoupled`, each step subtracts lr · weight_decay · w.
    """

    norm: str = "batch"
    learning_rate: float = 1e-2
    adam_eps: float = 1e-7
    weight_decay: float = 0.0
    decoupled: bool = False
    epochs: int = 100
    batch_size: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        find_normalisation(self.norm)
        self._check_positive("adam_eps")
        self._check_not_negative("weight_decay")

    def learning_rate_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0; the first epoch always has the full one."""
        return self._dropped(((max(1, round(fraction * self.epochs)), factor) for fraction, factor in DROPS), epoch)


def tuned_recipe(norm: str) -> Cifar10Recipe:
    """The recipe with the numbers that `predbn tune` found for a normalisation (trials in `results/training`)."""
    recipe = Cifar10Recipe(norm=norm)
    numbers = json.loads((files("predbn.training.cifar10") / "tuned.json").read_text())
    return replace(recipe, **numbers.get(norm, {}))
