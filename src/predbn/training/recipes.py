"""The paper's recipes for CIFAR-10, Criteo and ImageNet, and the hyperparameters for CIFAR-10 from the searches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal, get_args

from predbn.common import TrainingError
from predbn.models import IMAGENET_PREPROCESSING, CriteoSizes, Preprocessing, find_normalisation

from .cifar10.augmentation import BORDERS, PADDING, Border

_DROPS = ((0.4, 0.1), (0.6, 0.01), (0.8, 0.001), (0.9, 0.0005))
"""CIFAR-10 and Criteo: from these fractions of the training on, the learning rate has these factors (epochs 40, 60, 80
and 90 of 100)."""
_IMAGENET_DROPS = ((30 / 90, 0.1), (60 / 90, 0.01), (80 / 90, 0.001))

Schedule = Literal["paper", "cosine"]
"""How the learning rate of CIFAR-10 falls: in the paper's four drops, or as half a cosine."""

Precision = Literal["fp32", "tf32", "bf16"]
MAX_PADDING = 31
"""An image of 32 pixels cannot be reflected further."""


@dataclass(frozen=True, kw_only=True)
class BaseRecipe:
    """The hyperparameters that every recipe has. `eps` is the ε of the normalisation layers."""

    learning_rate: float
    momentum: float = 0.9
    epochs: int
    batch_size: int
    eps: float = 1e-3

    def __post_init__(self) -> None:
        self._check_positive("learning_rate", "eps")
        self._check_at_least(epochs=1, batch_size=1)
        self._check("momentum", "at least 0 and less than 1", 0 <= self.momentum < 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _check(self, name: str, requirement: str, is_met: bool) -> None:
        if not is_met:
            raise TrainingError(f"Expected {name} to be {requirement}, but got {getattr(self, name)!r}.")

    def _check_positive(self, *names: str) -> None:
        for name in names:
            self._check(name, "finite and greater than 0", 0 < getattr(self, name) < math.inf)

    def _check_at_least(self, **minimums: int) -> None:
        for name, minimum in minimums.items():
            self._check(name, f"at least {minimum}", getattr(self, name) >= minimum)

    def _check_choice(self, name: str, choices: Iterable[str]) -> None:
        self._check(name, f"one of {', '.join(choices)}", getattr(self, name) in choices)

    def _dropped(self, drops: Iterable[tuple[float, float]], position: float) -> float:
        """The learning rate times the factor of the last drop, (where, factor), at or before a position."""
        factor = 1.0
        for where, value in drops:
            if position >= where:
                factor = value
        return self.learning_rate * factor


@dataclass(frozen=True, kw_only=True)
class Cifar10Recipe(BaseRecipe):
    """Adam on ResNet-20 v1, batch 512, 100 epochs, four drops of the learning rate; or SGD with Nesterov's momentum.

    `momentum` is Adam's β₁ or that of SGD, `adam_eps` Adam's ε. `weight_decay` acts on filters and matrices. The paper
    does not mention any, but calls its network "standard", and the standard one is trained with it; 0 turns it off. It
    is added to the gradient (L2: ½ weight_decay ‖w‖² in the loss) or, if `decoupled`, each step subtracts
    lr · weight_decay · w, which is for Adam alone.
    In the first `warm_up` epochs the learning rate rises linearly from 0 to that of the schedule. Fixup's scalar
    parameters have `scalar_rate` times the learning rate.
    Crops come from images with `padding` pixels on each side, which `border` fills (`augmentation.py`).
    """

    norm: str = "batch"
    sgd: bool = False
    learning_rate: float = 1e-2
    adam_eps: float = 1e-7
    weight_decay: float = 0.0
    decoupled: bool = False
    schedule: Schedule = "paper"
    warm_up: int = 0
    scalar_rate: float = 1.0
    epochs: int = 100
    batch_size: int = 512
    padding: int = PADDING
    border: Border = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        find_normalisation(self.norm)
        self._check_at_least(padding=0, warm_up=0)
        self._check("padding", f"at most {MAX_PADDING}", self.padding <= MAX_PADDING)
        self._check_choice("border", BORDERS)
        self._check_choice("schedule", get_args(Schedule))
        self._check_positive("adam_eps", "scalar_rate")
        self._check("weight_decay", "finite and non-negative", 0 <= self.weight_decay < math.inf)
        if self.sgd and self.decoupled:
            raise TrainingError("sgd and decoupled cannot be combined: use SGD with L2 weight decay.")
        if self.sgd and not self.momentum:
            raise TrainingError("sgd with Nesterov's momentum needs a momentum greater than 0.")

    def learning_rate_at(self, epochs_done: float) -> float:
        """The learning rate after `epochs_done` epochs, which may be a fraction.

        With the paper's schedule the first epoch always has the full rate, however short the training.
        """
        if self.schedule == "paper":
            drops = ((max(1, round(fraction * self.epochs)), factor) for fraction, factor in _DROPS)
            rate = self._dropped(drops, epochs_done)
        else:
            rate = self.learning_rate * 0.5 * (1 + math.cos(math.pi * epochs_done / self.epochs))
        return rate * min(1.0, epochs_done / self.warm_up) if self.warm_up else rate


def tuned_recipe(norm: str) -> Cifar10Recipe:
    """The best recipe that the random search found for a normalisation (trials in `results/training`)."""
    recipe = Cifar10Recipe(norm=norm)
    numbers = json.loads((files("predbn.training.cifar10") / "tuned.json").read_text())
    return replace(recipe, **numbers.get(norm, {}))


def cosine_recipe(norm: str) -> Cifar10Recipe:
    """A shorter recipe for SGD: batch 256, 120 epochs, Nesterov momentum, more weight decay, a cosine schedule.

    Weight decay needs about 1/(learning rate × weight decay) steps to have an effect: 10,000 of 21,000. Fixup, which
    does not learn with this learning rate, has a quarter of it.
    """
    fixup = find_normalisation(norm).fixup
    return Cifar10Recipe(
        norm=norm,
        sgd=True,
        learning_rate=0.05 if fixup else 0.2,
        momentum=0.9,
        weight_decay=5e-4,
        schedule="cosine",
        warm_up=1,
        scalar_rate=0.1 if fixup else 1.0,
        epochs=120,
        batch_size=256,
    )


CIFAR10_RECIPES: dict[str, Callable[[str], Cifar10Recipe]] = {
    "tuned": tuned_recipe,
    "cosine": cosine_recipe,
}
"""Recipes by name, each for any normalisation."""


def find_cifar10_recipe(name: str, norm: str) -> Cifar10Recipe:
    """The recipe of that name for a normalisation."""
    if name not in CIFAR10_RECIPES:
        raise TrainingError(f"Expected recipe to be one of {', '.join(CIFAR10_RECIPES)}, but got {name!r}.")
    return CIFAR10_RECIPES[name](norm)


@dataclass(frozen=True, kw_only=True)
class CriteoRecipe(BaseRecipe):
    """Adam, one epoch, batch 1024, the learning rate dropped at the same fractions of the training as for CIFAR-10.

    `momentum` is Adam's β₁, `adam_eps` its ε. Each step moves the running statistics of the batch norm by
    `norm_momentum`: with 0.01 it takes some hundred steps to forget their initial values, too many for a short
    training. Training ends when the validation loss has not fallen for `patience` epochs; the network of the best
    epoch is kept in any case. `precision` is that of the matrix products on a GPU.
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
        self._check("norm_momentum", "greater than 0 and at most 1", 0 < self.norm_momentum <= 1)
        self._check_choice("precision", get_args(Precision))

    def learning_rate_at(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0 over all epochs, out of all steps of the training."""
        return self._dropped(((round(fraction * steps), factor) for fraction, factor in _DROPS), step)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "sizes": self.sizes.to_dict()}


@dataclass(frozen=True, kw_only=True)
class ImageNetRecipe(BaseRecipe):
    """SGD with Nesterov momentum on ResNet-50 v1, batch 512, 90 epochs, 5 of them warm-up, drops at 30, 60 and 80.

    The paper gives the ranges of its search for the learning rate and the momentum, but not the results, and it does
    not mention weight decay: these are the usual values for ResNet-50 (0.1 for every 256 images of a batch,
    0.9, 1e-4 on filters and matrices). `size` is the side of the images. `batch_size` is that of all GPUs together;
    each GPU normalises with the statistics of its own share.
    """

    learning_rate: float = 0.2
    weight_decay: float = 1e-4
    epochs: int = 90
    warm_up: int = 5
    batch_size: int = 512
    eps: float = 1e-5
    size: int = 224

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("momentum", "greater than 0 for Nesterov's method", self.momentum > 0)
        self._check("weight_decay", "finite and non-negative", 0 <= self.weight_decay < math.inf)
        self._check_at_least(warm_up=0, size=1)

    def learning_rate_at(self, epochs_done: float) -> float:
        """The learning rate after `epochs_done` epochs: a linear warm-up from 0, then the drops."""
        if epochs_done < self.warm_up:
            return self.learning_rate * epochs_done / self.warm_up
        drops = ((fraction * self.epochs - 1e-9, factor) for fraction, factor in _IMAGENET_DROPS)
        return self._dropped(drops, epochs_done)

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared; validation images have the same margin at every size, 256 to 224."""
        return replace(IMAGENET_PREPROCESSING, size=(self.size, self.size), resize=round(self.size * 256 / 224))
