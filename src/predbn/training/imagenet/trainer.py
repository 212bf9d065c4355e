"""Training ResNet-50 on ImageNet, each process on its share of the batches."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from predbn.models import Classifier, ModelInfo, load_weights, read_weights, resnet50

from ..networks import train_networks
from ..optimisers import decay_groups, make_sgd
from ..process_group import ProcessGroup
from ..recipes import ImageNetRecipe
from ..trainer import ImageTrainer, build_seeded
from .data import ImageNetData

ARCHITECTURE = "resnet50-imagenet/batch"
VALIDATION_BATCH = 100


class ImageNetTrainer(ImageTrainer):
    """The training of one seed.

    Gradients are averaged over the processes, so that a step is that of the whole batch. Each process normalises with
    the statistics of its own share; the running statistics that are kept are those of the first process.
    """

    recipe: ImageNetRecipe
    architecture = ARCHITECTURE
    optimiser_name = "SGD with Nesterov's momentum"
    captured = False  # the kernels are large enough to hide their launches

    def __init__(
        self, recipe: ImageNetRecipe, seed: int, data: ImageNetData, group: ProcessGroup, *, workers: int = 0
    ) -> None:
        self.data, self.validation, self.workers, device = data, data.validation, workers, group.device
        classes = len(data.train.classes)
        network = build_seeded(seed, lambda: resnet50(eps=recipe.eps, classes=classes))
        network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        model = Classifier(network, ModelInfo("training", classes, recipe.preprocessing)).to(device)
        learning_rate = torch.tensor(recipe.learning_rate, device=device)
        groups = decay_groups(network, recipe.weight_decay)
        optimiser = make_sgd(groups, learning_rate, momentum=recipe.momentum)
        super().__init__(recipe, seed, model, optimiser, group, examples=len(data.train))
        self.batches: Generator[tuple[Tensor, Tensor]] | None = None

    def begin_epoch(self) -> None:
        if self.batches is None:
            self.batches = self.data.batches(
                seed=self.seed,
                batch_size=self.recipe.batch_size,
                epochs=self.recipe.epochs,
                start=(self.epoch, self.step),
                rank=self.group.rank,
                ranks=self.group.size,
                workers=self.workers,
            )

    def load_batch(self) -> None:
        assert self.batches is not None
        self.batch = self._on_device(*next(self.batches))

    def read_batch(self) -> tuple[Tensor, Tensor]:
        return self.batch

    def validation_batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        share = range(self.group.rank, len(self.validation), self.group.size)
        batches = self.validation.batches(VALIDATION_BATCH, order=share, device=self.device)
        return (self._on_device(batch.images, batch.labels) for batch in batches)

    def _on_device(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        images = images.to(self.device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        return images, labels.to(self.device, non_blocking=True)

    def card(self) -> dict[str, Any]:
        train = self.data.train
        return {
            **super().card(),
            "augmentation": "Inception crops (5 % to 100 % of the area, sides 3:4 to 4:3), random flip",
            "trained_on": f"{len(train):,} images of {len(train.classes):,} classes",
            "data": {"validation": self.validation.sums},
            "processes": self.group.size,
        }

    def score_stored(self, weights: Path) -> dict[str, Any]:
        load_weights(self.network, read_weights(weights)[0], str(weights))
        loss, accuracy = self.validate()
        return {
            "validation": {
                "images": len(self.validation),
                "accuracy": round(accuracy, 6),
                "nll": round(loss, 6) if math.isfinite(loss) else None,
            }
        }

    def close(self) -> None:
        if self.batches is not None:
            self.batches.close()


def train_imagenet(
    recipe: ImageNetRecipe,
    seed: int,
    data: ImageNetData,
    out: Path,
    group: ProcessGroup,
    *,
    workers: int = 0,
    checkpoint_every: int = 1000,
    **options: Any,
) -> dict[str, Any]:
    """Train a network, write it to `out`/resnet50-imagenet/batch as `train_networks` describes, and return its card.

    `checkpoint_every` is in steps; the other options are those of `train_networks`. `resume` gives the same network
    bit for bit if the device computes the same bits twice. Every process of the group has to call this; the first one
    writes, and all of them have to see the folder `out`.
    """
    cards = train_networks(
        lambda seed: ImageNetTrainer(recipe, seed, data, group, workers=workers),
        recipe,
        [seed],
        out / ARCHITECTURE,
        checkpoint_steps=checkpoint_every,
        is_first=group.is_first,
        **options,
    )
    return cards[seed]
