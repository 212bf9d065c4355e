"""Train networks and leave them as the zoo keeps them: weights, card and log a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from predbn.common import TrainingError, finish, part_of
from predbn.data import Images
from predbn.models import SIGNED_PREPROCESSING as SIGNED
from predbn.models import Classifier, Description, load_weights, resnet20
from predbn.models import read_weights as read
from predbn.models import write_weights as write

from . import card
from .checkpoint import checkpoint_of, refuse_another
from .cohort import Epoch, Run, train_together
from .recipe import Recipe
from .trainee import Trainee, TrainingSet

__all__ = ["Sets", "place_of", "produce", "unfinished"]


class Sets:
    """The three parts of the data, the training and validation images on the device."""

    def __init__(self, train: Images, validation: Images, test: Images, device: torch.device) -> None:
        self.train, self.validation, self.test = train, validation, test
        self.on_device = TrainingSet(train.images, train.labels, validation.images, validation.labels).to(device)


def place_of(out: Path, norm: str, seed: int) -> Path:
    """Where the files of a run go, without a suffix: the layout of the zoo."""
    return out / "resnet20-cifar10" / norm / str(seed)


def unfinished(recipe: Recipe, seeds: Sequence[int], out: Path, *, resume: bool) -> list[int]:
    """The seeds that are still to be trained; a network that is there is refused without `resume`.

    The card is written last: a network without one was interrupted in its last moment and is finished again.
    """
    wanted = []
    for seed in seeds:
        path = place_of(out, recipe.norm, seed).with_suffix(".json")
        if not path.exists():
            wanted.append(seed)
        elif not resume:
            raise TrainingError(f"{path} is there already: give --resume to keep it, or choose another --out.")
        else:
            refuse_another(path, json.loads(path.read_text())["recipe"], recipe.describe())
    return wanted


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

    Networks that are there are left alone with `resume`, and refused without. One that diverges is told when the
    others are written.
    """
    if at_once < 1:
        raise TrainingError(f"at_once is {at_once}, but it must be at least 1.")
    wanted = unfinished(recipe, seeds, out, resume=resume)
    diverged = []
    for start in range(0, len(wanted), at_once):
        trained = train_together(
            [Run(recipe, seed, place_of(out, recipe.norm, seed)) for seed in wanted[start : start + at_once]],
            sets.on_device,
            resume=resume,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            on_epoch=on_epoch,
        )
        for trainee, epoch in trained:
            if epoch is not None and epoch.diverged:
                diverged.append(f"{trainee.seed} (epoch {epoch.epoch})")
            else:
                on_network(trainee.seed, _finish(trainee, sets, place_of(out, recipe.norm, trainee.seed)))
    if diverged:
        raise TrainingError(
            f"The loss stopped being a number with seed {', '.join(diverged)}: lower the learning rate."
        )


def _finish(trainee: Trainee, sets: Sets, place: Path) -> dict[str, Any]:
    """Write the weights, then the card with the scores of what was written, then give up the checkpoint."""
    recipe, weights = trainee.recipe, place.with_suffix(".safetensors")
    write(weights, trainee.network.state_dict())
    network = resnet20(recipe.norm, eps=recipe.eps)
    load_weights(network, read(weights)[0], str(weights))
    stored = Classifier(network, Description(str(weights), 10, SIGNED)).to(trainee.device)
    validation_accuracy, _ = trainee.validate()
    found = card.make(
        recipe,
        trainee.seed,
        trainee.device,
        data={"train": sets.train, "validation": sets.validation, "test": sets.test},
        validation_accuracy=validation_accuracy,
        test_scores=card.score(stored, sets.test),
    )
    path = place.with_suffix(".json")
    part_of(path).write_text(json.dumps(found, indent=2) + "\n")
    finish(path)
    checkpoint_of(place).unlink(missing_ok=True)
    return found
