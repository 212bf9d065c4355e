"""The paper's recipe for ImageNet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from predbn.common import TrainingError
from predbn.models import IMAGENET_PREPROCESSING, Preprocessing

from ..recipe import BaseRecipe

DROPS = ((30 / 90, 0.1), (60 / 90, 0.01), (80 / 90, 0.001))
"""From these fractions of the epochs on, the learning rate has these factors: epochs 30, 60 and 80 of 90."""


@dataclass(frozen=True, kw_only=True)
class ImageNetRecipe(BaseRecipe):
    """SGD with Nesterov momentum on ResNet-50 v1, batch 512, 90 epochs, 5 of them warm-up, three drops.

    The paper gives the ranges in which it searched for the learning rate and the momentum, but not what it found, and
    it does not mention weight decay: these are the usual numbers for ResNet-50 (0.1 for every 256 images of a batch,
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
        if self.momentum == 0:
            raise TrainingError(f"momentum is {self.momentum}, but Nesterov's method needs one greater than 0.")
        self._check_not_negative("weight_decay")
        self._check_at_least(warm_up=0, size=1)

    def learning_rate_at(self, epochs_done: float) -> float:
        """The learning rate after so many epochs and fractions of one: a linear warm-up from 0, then steps."""
        if epochs_done < self.warm_up:
            return self.learning_rate * epochs_done / self.warm_up
        return self._dropped(((fraction * self.epochs - 1e-9, factor) for fraction, factor in DROPS), epochs_done)

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared; validation images have the same margin at every size, 256 to 224."""
        return replace(IMAGENET_PREPROCESSING, size=(self.size, self.size), resize=round(self.size * 256 / 224))
