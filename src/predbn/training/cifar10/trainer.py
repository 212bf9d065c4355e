"""Training ResNet-20 on CIFAR-10, many networks side by side on one GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from predbn.data import Images
from predbn.models import SIGNED_PREPROCESSING as SIGNED
from predbn.models import Classifier, ModelInfo, load_weights, read_weights, resnet20

from ..cuda_graph import on_stream
from ..networks import train_networks
from ..optimisers import decay_groups, make_adam, make_sgd
from ..process_group import ProcessGroup
from ..recipes import Cifar10Recipe
from ..scoring import score
from ..trainer import ImageTrainer, build_seeded
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


class Cifar10Trainer(ImageTrainer):
    """The training of one seed.

    On a GPU the whole step, augmentation included, is a CUDA graph on a stream of its own: networks trained side by
    side use the time in which it leaves the GPU idle. The crops of an epoch are on the device before its first step.
    """

    recipe: Cifar10Recipe
    finite_metrics = ("loss", "validation_loss")
    deterministic = True

    def __init__(self, recipe: Cifar10Recipe, seed: int, data: Cifar10Data, *, compiled: bool = False) -> None:
        self.data, self.validation, device = data, data.validation, data.device
        self.architecture = f"resnet20-cifar10/{recipe.norm}"
        self.optimiser_name = "SGD" if recipe.sgd else "AdamW" if recipe.decoupled else "Adam"
        network = build_seeded(seed, lambda: resnet20(recipe.norm, eps=recipe.eps))
        network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        learning_rate = torch.tensor(recipe.learning_rate, device=device)
        self.scalar_rate = torch.zeros_like(learning_rate) if recipe.scalar_rate != 1 else None
        groups = decay_groups(network, recipe.weight_decay, self.scalar_rate)
        if recipe.sgd:
            optimiser = make_sgd(groups, learning_rate, momentum=recipe.momentum)
        else:
            options = {"momentum": recipe.momentum, "eps": recipe.adam_eps}
            optimiser = make_adam(groups, learning_rate, **options, decoupled=recipe.decoupled)
        super().__init__(
            recipe,
            seed,
            Classifier(network, ModelInfo("training", 10, SIGNED)).to(device),
            optimiser,
            ProcessGroup(device),
            examples=len(data.train),
            stream=torch.cuda.Stream(device) if device.type == "cuda" else None,
        )
        if compiled:
            self.parallel = torch.compile(self.model, dynamic=False)  # type: ignore[assignment]
        self.padded = data.padded(recipe.padding, recipe.border)
        empty = draw_crops(recipe.batch_size, recipe.batch_size, seed=0, epoch=0)
        self.batch = Crops(*(part[0].to(device) for part in empty))

    def begin_epoch(self) -> None:
        recipe, count = self.recipe, len(self.data.train)
        crops = draw_crops(count, recipe.batch_size, seed=self.seed, epoch=self.epoch, padding=recipe.padding)
        with on_stream(self.stream):
            pinned = (part.pin_memory() if self.stream else part for part in crops)
            self.crops = Crops(*(part.to(self.device, non_blocking=True) for part in pinned))

    def load_batch(self) -> None:
        for part, crops in zip(self.batch, self.crops, strict=True):
            part.copy_(crops[self.step])
        if self.scalar_rate is not None:
            torch.mul(self.learning_rate, self.recipe.scalar_rate, out=self.scalar_rate)

    def read_batch(self) -> tuple[Tensor, Tensor]:
        images = crop_images(self.padded, *self.batch, padding=self.recipe.padding)
        return images, self.data.labels[self.batch.order]

    def evaluate(self) -> dict[str, float]:
        """With the learning rate of the first step of the epoch."""
        return {**super().evaluate(), "learning_rate": self.rate_at((self.epoch - 1) * self.steps)}

    def validation_batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        images, labels = self.data.validation_images, self.data.validation_labels
        return zip(images.split(VALIDATION_BATCH), labels.split(VALIDATION_BATCH), strict=True)

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
    compiled: bool = False,
    checkpoint_every: int = 10,
    **options: Any,
) -> None:
    """Train a network with every seed and write it to `out`/resnet20-cifar10/`norm`, as `train_networks` describes.

    `checkpoint_every` is in epochs; `compiled` networks go through `torch.compile`, which chooses kernels by timing
    them, so that bits may differ from run to run. The other options are those of `train_networks`.
    """
    train_networks(
        lambda seed: Cifar10Trainer(recipe, seed, data, compiled=compiled),
        recipe,
        seeds,
        out / "resnet20-cifar10" / recipe.norm,
        side_by_side=side_by_side,
        checkpoint_steps=checkpoint_every * max(1, len(data.train) // recipe.batch_size),
        **options,
    )
