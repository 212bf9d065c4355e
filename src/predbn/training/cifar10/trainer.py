"""Training ResNet-20 on CIFAR-10, many networks side by side on one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from predbn.data import Images
from predbn.models import SIGNED_PREPROCESSING as SIGNED
from predbn.models import Classifier, ModelInfo, accelerate, load_weights, read_weights, resnet20

from ..batch_count import share_batch_count
from ..cuda_graph import StepGraph, on_stream
from ..networks import train_networks
from ..process_group import ProcessGroup
from ..recipes import Cifar10Recipe
from ..scoring import score, sum_loss_and_correct
from ..trainer import Trainer, build_seeded, decay_groups, make_adam, make_sgd
from .augmentation import PADDING, Border, Crops, crop_images, draw_crops, pad_images

VALIDATION_BATCH = 2500


class Cifar10Data:
    """The three parts of the data, with training and validation images also as tensors on the device.

    The training images are padded once for all epochs and all networks with the same border.
    """

    def __init__(self, train: Images, validation: Images, test: Images, device: torch.device) -> None:
        self.train, self.validation, self.test, self.device = train, validation, test, device
        self._padded: dict[tuple[int, Border], Tensor] = {}
        self.labels = train.labels.to(device)
        self.validation_images = validation.images.contiguous(memory_format=torch.channels_last).to(device)
        self.validation_labels = validation.labels.to(device)

    def padded(self, padding: int = PADDING, border: Border = "zero") -> Tensor:
        """The training images with a border, on the device."""
        if (padding, border) not in self._padded:
            self._padded[padding, border] = pad_images(self.train.images, padding, border).to(self.device)
        return self._padded[padding, border]


class Cifar10Trainer(Trainer):
    """The training of one seed.

    On a GPU the whole step (augmentation, forward and backward pass, optimiser) is a CUDA graph that runs on a stream
    of its own, so that networks trained beside it use the time in which it leaves the GPU idle. Everything the step
    reads is in fixed memory: the random crops and the learning rates of the epoch, and a cursor that the step itself
    advances. Checkpoints are written between epochs only: the position within an epoch is not part of the state.
    """

    recipe: Cifar10Recipe
    finite_metrics = ("loss", "validation_loss")
    deterministic = True

    def __init__(self, recipe: Cifar10Recipe, seed: int, data: Cifar10Data) -> None:
        self.data, device = data, data.device
        self.padded = data.padded(recipe.padding, recipe.border)
        network = build_seeded(seed, lambda: resnet20(recipe.norm, eps=recipe.eps))
        network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if device.type == "cuda":
            accelerate(network)
        self.batch_counts = share_batch_count(network)
        self.learning_rate = torch.tensor(recipe.learning_rate, device=device)
        self.scalar_rate = torch.zeros_like(self.learning_rate) if recipe.scalar_rate != 1 else None
        groups = decay_groups(network, recipe.weight_decay, self.scalar_rate)
        options: dict[str, Any] = {"momentum": recipe.momentum}
        if recipe.sgd:
            optimiser = make_sgd(groups, self.learning_rate, nesterov=recipe.nesterov, **options)
        else:
            options |= {"eps": recipe.adam_eps, "decoupled": recipe.decoupled}
            optimiser = make_adam(groups, self.learning_rate, **options)
        super().__init__(recipe, seed, network, optimiser, ProcessGroup(device), examples=len(data.train))
        self.architecture = f"resnet20-cifar10/{recipe.norm}"
        self.optimiser_name = "SGD" if recipe.sgd else "AdamW" if recipe.decoupled else "Adam"
        self.classifier = Classifier(network, ModelInfo("training", 10, SIGNED)).to(device)
        shape = (self.steps, recipe.batch_size)
        self.crops = Crops(
            order=torch.zeros(shape, dtype=torch.int64, device=device),
            corner=torch.zeros((*shape, 2), dtype=torch.int64, device=device),
            mirrored=torch.zeros(shape, dtype=torch.bool, device=device),
        )
        self.rates = torch.zeros(self.steps, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.correct = torch.zeros((), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.validation_sums: Tensor | None = None
        self.counters = [self.cursor, self.loss_sum, self.correct]
        self.graph = StepGraph(network, optimiser, self.counters, device, stream=self.stream)

    def begin_epoch(self) -> None:
        recipe = self.recipe
        crops = draw_crops(
            len(self.data.train), recipe.batch_size, seed=self.seed, epoch=self.epoch, padding=recipe.padding
        )
        rates = torch.tensor([recipe.learning_rate_at(self.epoch + step / self.steps) for step in range(self.steps)])
        with on_stream(self.stream):
            for tensor, value in zip((*self.crops, self.rates), (*crops, rates), strict=True):
                tensor.copy_(value.pin_memory() if self.stream else value, non_blocking=True)
            for counter in self.counters:
                counter.zero_()

    def train_step(self) -> None:
        self.graph.run(self._step)

    def _step(self) -> None:
        order, corner, mirrored = (part.index_select(0, self.cursor)[0] for part in self.crops)
        images = crop_images(self.padded, order, corner, mirrored, padding=self.recipe.padding)
        labels = self.data.labels[order]
        self.learning_rate.copy_(self.rates.index_select(0, self.cursor)[0])
        if self.scalar_rate is not None:
            torch.mul(self.learning_rate, self.recipe.scalar_rate, out=self.scalar_rate)
        loss, logits = self.optimise(self.classifier, images, labels)
        self.cursor.add_(1)
        self.batch_counts.add_(1)
        self.loss_sum.add_(loss)
        self.correct.add_((logits.argmax(1) == labels).sum())

    def queue_evaluation(self) -> None:
        self.validation_sums = self._queue_validation()

    def evaluate(self) -> dict[str, float]:
        # Validation waits for the stream: only then may the sums of the epoch be read.
        sums, self.validation_sums = self.validation_sums, None
        validation_loss, validation_accuracy = self._read_validation(self._queue_validation() if sums is None else sums)
        return {
            "learning_rate": self.recipe.learning_rate_at(self.epoch - 1),
            "loss": self.loss_sum.item() / self.steps,
            "accuracy": self.correct.item() / (self.steps * self.recipe.batch_size),
            "validation_loss": validation_loss,
            "validation_accuracy": validation_accuracy,
        }

    def validate(self, size: int = VALIDATION_BATCH) -> tuple[float, float]:
        """Mean loss and accuracy on the validation images."""
        return self._read_validation(self._queue_validation(size))

    def _queue_validation(self, size: int = VALIDATION_BATCH) -> Tensor:
        """The summed loss and the number of correct predictions, without waiting for them."""
        images, labels = self.data.validation_images, self.data.validation_labels
        with on_stream(self.stream):
            batches = zip(images.split(size), labels.split(size), strict=True)
            return sum_loss_and_correct(self.classifier, batches, self.device)

    def _read_validation(self, sums: Tensor) -> tuple[float, float]:
        with on_stream(self.stream):
            loss, correct = sums.tolist()
        count = max(1, len(self.data.validation_labels))
        return loss / count, correct / count

    def card(self) -> dict[str, Any]:
        data = self.data
        return {
            **super().card(),
            "augmentation": f"{self.recipe.border}-pad {self.recipe.padding}, random crop 32, random flip, "
            "pixels to [-1, 1]",
            "trained_on": f"{data.train.name}: {len(data.train):,} images",
            "validated_on": f"{data.validation.name}: {len(data.validation):,} images",
            "data": {"train": data.train.sums, "validation": data.validation.sums, "test": data.test.sums},
        }

    def score_stored(self, weights: Path) -> dict[str, Any]:
        network = resnet20(self.recipe.norm, eps=self.recipe.eps)
        load_weights(network, read_weights(weights)[0], str(weights))
        classifier = Classifier(network, ModelInfo(str(weights), 10, SIGNED)).to(self.device)
        scores = {name: round(value, 6) for name, value in score(classifier, self.data.test, self.device).items()}
        return {
            "validation_accuracy": round(self.validate()[1], 4),
            "test": {"images": len(self.data.test), **scores},
        }


def train_cifar10(
    recipe: Cifar10Recipe,
    seeds: Sequence[int],
    data: Cifar10Data,
    out: Path,
    *,
    side_by_side: int = 10,
    checkpoint_every: int = 10,
    **options: Any,
) -> None:
    """Train a network with every seed and write it to `out`/resnet20-cifar10/`norm`, as `train_networks` describes.

    `checkpoint_every` is in epochs; the other options are those of `train_networks`.
    """
    train_networks(
        lambda seed: Cifar10Trainer(recipe, seed, data),
        recipe,
        seeds,
        out / "resnet20-cifar10" / recipe.norm,
        side_by_side=side_by_side,
        checkpoint_epochs=checkpoint_every,
        **options,
    )
