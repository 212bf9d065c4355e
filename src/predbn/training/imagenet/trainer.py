"""Training ResNet-50 on ImageNet, each process on its share of the batches."""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from predbn.models import Normalise, load_weights, read_weights, resnet50

from ..networks import train_networks
from ..process_group import ProcessGroup
from ..recipes import ImageNetRecipe
from ..scoring import sum_loss_and_correct
from ..trainer import Trainer, build_seeded, decay_groups
from .data import ImageNetData

ARCHITECTURE = "resnet50-imagenet/batch"


class ImageNetTrainer(Trainer):
    """The training of one seed.

    Gradients are averaged over the processes, so that a step is that of the whole batch. Each process normalises with
    the statistics of its own share; the running statistics that are kept are those of the first process. On a GPU,
    forward and backward pass are in bf16 and channels_last.
    """

    recipe: ImageNetRecipe
    architecture = ARCHITECTURE
    optimiser_name = "SGD with Nesterov's momentum"

    def __init__(
        self, recipe: ImageNetRecipe, seed: int, data: ImageNetData, group: ProcessGroup, *, workers: int = 0
    ) -> None:
        self.data, self.workers, device = data, workers, group.device
        network = build_seeded(seed, lambda: resnet50(eps=recipe.eps, classes=len(data.train.classes)))
        network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = torch.optim.SGD(
            decay_groups(network, recipe.weight_decay),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=True,
        )
        super().__init__(recipe, seed, network, optimiser, group, examples=len(data.train))
        self.normalise = Normalise(recipe.preprocessing).to(device)
        self.parallel = self.network
        if group.size > 1:
            self.parallel = DistributedDataParallel(self.network, [device] if device.type == "cuda" else None)
        self.totals = torch.zeros(2, device=device, dtype=torch.float64)
        """Of this epoch so far, on this process: the summed loss and the number of correct predictions."""
        self._batches: Generator[tuple[Tensor, Tensor]] | None = None

    def begin_epoch(self) -> None:
        if self._batches is None:
            self._batches = self.data.batches(
                seed=self.seed,
                batch_size=self.recipe.batch_size,
                epochs=self.recipe.epochs,
                start=(self.epoch, self.step),
                rank=self.group.rank,
                ranks=self.group.size,
                workers=self.workers,
            )
        if self.step == 0:
            self.totals.zero_()

    def train_step(self) -> None:
        assert self._batches is not None
        self.train_on(*next(self._batches))

    def train_on(self, images: Tensor, labels: Tensor) -> None:
        """One step on this process's share of a batch."""
        images, labels = (tensor.to(self.device, non_blocking=True) for tensor in (images, labels))
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.learning_rate_at(self.epoch + self.step / self.steps)
        loss, logits = self.optimise(self.parallel, self._prepare(images), labels)
        self.totals += torch.stack([loss * len(labels), (logits.argmax(1) == labels).sum()]).double()

    def evaluate(self) -> dict[str, float]:
        seen = self.steps * self.recipe.batch_size
        loss, accuracy = (self.group.sum(self.totals.clone()) / seen).tolist()
        validation_loss, validation_accuracy = self.validate()
        self.totals.zero_()
        return {
            "learning_rate": self.recipe.learning_rate_at(self.epoch - 1 + (self.steps - 1) / self.steps),
            "loss": loss,
            "accuracy": accuracy,
            "validation_loss": validation_loss,
            "validation_accuracy": validation_accuracy,
        }

    def validate(self, size: int = 100) -> tuple[float, float]:
        """Mean loss and accuracy on the validation images, which are divided among the processes."""
        images = self.data.validation
        self.group.broadcast(self.network.buffers())
        share = range(self.group.rank, len(images), self.group.size)
        batches = images.batches(size, order=share, device=self.device)
        pairs = ((self._prepare(batch.images), batch.labels) for batch in batches)
        totals = self.group.sum(sum_loss_and_correct(self.network, pairs, self.device))
        loss, accuracy = (totals / len(images)).tolist()
        return loss, accuracy

    def _prepare(self, images: Tensor) -> Tensor:
        prepared: Tensor = self.normalise(images).contiguous(memory_format=torch.channels_last)
        return prepared

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "step": self.step, "totals": self.group.sum(self.totals.clone())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume, with any number of processes: the totals are summed over them, so that one has all."""
        super().load_state_dict(state)
        self.totals.copy_(state["totals"] if self.group.is_first else torch.zeros_like(state["totals"]))

    def card(self) -> dict[str, Any]:
        train = self.data.train
        return {
            **super().card(),
            "augmentation": "Inception crops (5 % to 100 % of the area, sides 3:4 to 4:3), random flip",
            "trained_on": f"{len(train):,} images of {len(train.classes):,} classes",
            "data": {"validation": self.data.validation.sums},
            "processes": self.group.size,
        }

    def score_stored(self, weights: Path) -> dict[str, Any]:
        load_weights(self.network, read_weights(weights)[0], str(weights))
        loss, accuracy = self.validate()
        return {
            "validation": {
                "images": len(self.data.validation),
                "accuracy": round(accuracy, 6),
                "nll": round(loss, 6) if math.isfinite(loss) else None,
            }
        }

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()


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

    `checkpoint_every` is in steps; a checkpoint is also written after each epoch. The other options are those of
    `train_networks`; `resume` gives the same network bit for bit if the device computes the same bits twice. Every
    process of the group has to call this; the first one writes, and all of them have to see the folder `out`.
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
