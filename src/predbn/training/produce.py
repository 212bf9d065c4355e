"""Train networks and leave them as the zoo keeps them: weights, card and log a seed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from predbn.data import Images
from predbn.models.classifier import Classifier, Description
from predbn.models.preprocessing import SIGNED
from predbn.models.resnet import resnet20
from predbn.models.weights import load_into, read, write

from . import card
from .cohort import Epoch, Run, train_together
from .errors import TrainingError
from .recipe import Recipe
from .trainee import Trainee, TrainingSet

__all__ = ["Sets", "place_of", "produce"]


class Sets:
    """The three parts of the data, the training and validation images on the device."""

    def __init__(self, train: Images, validation: Images, test: Images, device: torch.device) -> None:
        self.train, self.validation, self.test = train, validation, test
        self.on_device = TrainingSet(train.images, train.labels, validation.images, validation.labels).to(device)


def place_of(out: Path, norm: str, seed: int) -> Path:
    """Where the files of a run go, without a suffix: the layout of the zoo."""
    return out / "resnet20-cifar10" / norm / str(seed)


def produce(
    recipe: Recipe,
    seeds: Sequence[int],
    sets: Sets,
    out: Path,
    *,
    at_once: int = 10,
    resume: bool = False,
    checkpoint_every: int = 10,
    tensorboard: bool = False,
    on_epoch: Callable[[list[Epoch]], None] = lambda epochs: None,
    on_network: Callable[[int, dict[str, Any]], None] = lambda seed, card: None,
) -> None:
    """Train the recipe with every seed, `at_once` side by side, and write `<seed>.safetensors`, `.json` and `.csv`.

    Seeds whose weights are there are left alone with `resume`, and refused without.
    """
    wanted = []
    for seed in seeds:
        weights = place_of(out, recipe.norm, seed).with_suffix(".safetensors")
        if not weights.exists():
            wanted.append(seed)
        elif not resume:
            raise TrainingError(f"{weights} is there already: give --resume to keep it, or choose another --out.")
    for start in range(0, len(wanted), at_once):
        runs = [Run(recipe, seed, place_of(out, recipe.norm, seed)) for seed in wanted[start : start + at_once]]
        options = {"resume": resume, "checkpoint_every": checkpoint_every, "tensorboard": tensorboard}
        for trainee, epoch in train_together(runs, sets.on_device, on_epoch=on_epoch, **options):  # type: ignore[arg-type]
            on_network(trainee.seed, _finish(trainee, epoch, sets, place_of(out, recipe.norm, trainee.seed)))


def _finish(trainee: Trainee, epoch: Epoch | None, sets: Sets, place: Path) -> dict[str, Any]:
    recipe, seed = trainee.recipe, trainee.seed
    if epoch is not None and epoch.diverged:
        raise TrainingError(
            f"The network with seed {seed} diverged in epoch {epoch.epoch} (its loss is not a number): "
            "lower the learning rate."
        )
    if epoch is None:  # the checkpoint was of the last epoch
        correct, loss = trainee.validate()
        held_out = len(sets.validation)
        epoch = Epoch(Run(recipe, seed), trainee.epoch, 0.0, 0.0, loss.item() / held_out, correct.item() / held_out)
    weights = place.with_suffix(".safetensors")
    write(weights, trainee.network.state_dict())
    network = resnet20(recipe.norm, eps=recipe.eps)
    load_into(network, read(weights)[0], str(weights))
    stored = Classifier(network, Description(str(weights), 10, SIGNED)).to(trainee.device)
    found = card.make(recipe, seed, epoch, sets.train, sets.test, card.score(stored, sets.test))
    temporary = place.with_name(f".{place.name}.json")
    temporary.write_text(json.dumps(found, indent=2) + "\n")
    os.replace(temporary, place.with_suffix(".json"))
    place.with_name(place.name + ".checkpoint").unlink(missing_ok=True)
    return found
