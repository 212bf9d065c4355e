"""A training run from its first step, or from where it was, to the weights and their card."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import predbn
from predbn.common import TrainingError, commit, write_bytes
from predbn.models import load_weights
from predbn.models import read_weights as read
from predbn.models import write_weights as write

from .. import checkpoint
from ..log import Log
from .data import TrainingData
from .processes import Processes
from .recipe import ImageNetRecipe
from .trainee import ImageNetTrainee

__all__ = ["Progress", "place_of", "train"]


class Progress(NamedTuple):
    """How far a run is: whole epochs, steps of the next one, and the accuracy that the last epoch ended with."""

    epoch: int
    step: int
    steps: int
    accuracy: float | None


def place_of(out: Path, seed: int) -> Path:
    """Where the files of a run go, without a suffix: the layout of the zoo."""
    return out / "resnet50-imagenet" / "batch" / str(seed)


def train(
    recipe: ImageNetRecipe,
    data: TrainingData,
    out: Path,
    processes: Processes,
    *,
    seed: int = 0,
    workers: int = 0,
    resume: bool = False,
    checkpoint_every: int = 1000,
    tensorboard: bool = False,
    on_step: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Train to the last epoch; write `<seed>.safetensors`, `.json` (the card, which is returned) and `.csv`.

    A checkpoint is written every so many steps and at the end of each epoch; `resume` goes on from there and gives
    the same network, bit for bit where the device computes the same bits twice. Every process calls this; the first
    one writes, and all must see the folder `out`.
    """
    place = place_of(out, seed)
    card, saved = place.with_suffix(".json"), place.with_name(f"{place.name}.checkpoint")
    if not resume and (card.exists() or saved.exists()):
        raise TrainingError(
            f"{place} was begun or is trained: give --resume to go on with it, or choose another --out."
        )
    if card.exists():
        found: dict[str, Any] = json.loads(card.read_text())
        return found
    trainee = ImageNetTrainee(recipe, seed, len(data.train.classes), processes)
    if saved.exists():
        trainee.load_state(checkpoint.read(saved, recipe.describe(), seed, processes.device))
    log = Log(place.with_suffix(".csv"), done=trainee.epoch, tensorboard=tensorboard) if processes.first else None
    _run(trainee, data, saved, log, workers, checkpoint_every, on_step)
    found = _finish(trainee, data, place)
    if processes.first:
        saved.unlink(missing_ok=True)
    return found


def _run(
    trainee: ImageNetTrainee,
    data: TrainingData,
    saved: Path,
    log: Log | None,
    workers: int,
    checkpoint_every: int,
    on_step: Callable[[Progress], None],
) -> None:
    recipe, processes = trainee.recipe, trainee.processes
    steps = len(data.train) // recipe.batch_size
    batches = data.batches(
        seed=trainee.seed,
        batch_size=recipe.batch_size,
        epochs=recipe.epochs,
        start=(trainee.epoch, trainee.step),
        rank=processes.rank,
        ranks=processes.count,
        workers=workers,
    )
    accuracy: float | None = None
    start = time.perf_counter()
    for images, labels in batches:
        trainee.take_step(images, labels, steps)
        if trainee.step == steps:
            row = _end_epoch(trainee, data, steps)
            accuracy = row["validation_accuracy"]
            start, row["seconds"] = time.perf_counter(), time.perf_counter() - start
            if log is not None:
                log.append(row)
            if not math.isfinite(row["loss"]):
                raise TrainingError(
                    f"The loss stopped being a number in epoch {row['epoch']}: lower the learning rate."
                )
        if trainee.step % checkpoint_every == 0:
            _save(saved, trainee)
        on_step(Progress(trainee.epoch, trainee.step, steps, accuracy))


def _end_epoch(trainee: ImageNetTrainee, data: TrainingData, steps: int) -> dict[str, float]:
    recipe = trainee.recipe
    rate = recipe.rate(trainee.epoch + (steps - 1) / steps)
    loss, accuracy = trainee.end_epoch(steps * recipe.batch_size)
    validation_loss, validation_accuracy = trainee.validate(data.validation)
    return {
        "epoch": trainee.epoch,
        "learning_rate": rate,
        "loss": loss,
        "accuracy": accuracy,
        "validation_loss": validation_loss,
        "validation_accuracy": validation_accuracy,
    }


def _save(path: Path, trainee: ImageNetTrainee) -> None:
    state = trainee.state()
    if trainee.processes.first:
        checkpoint.write(path, state)


def _finish(trainee: ImageNetTrainee, data: TrainingData, place: Path) -> dict[str, Any]:
    """Write the weights, then the card with the scores of what was written."""
    processes, weights = trainee.processes, place.with_suffix(".safetensors")
    if processes.first:
        write(weights, trainee.network.state_dict())
    processes.wait()
    load_weights(trainee.network, read(weights)[0], str(weights))
    loss, accuracy = trainee.validate(data.validation)
    device = processes.device
    card = {
        "architecture": "resnet50-imagenet/batch",
        "seed": trainee.seed,
        "recipe": {"optimiser": "SGD with Nesterov's momentum", **trainee.recipe.describe()},
        "augmentation": "Inception crops (5 % to 100 % of the area, sides 3:4 to 4:3), random flip",
        "trained_on": f"{len(data.train):,} images of {len(data.train.classes):,} classes",
        "data": {"validation": data.validation.sums},
        "validation": {
            "images": len(data.validation),
            "accuracy": round(accuracy, 6),
            "nll": round(loss, 6) if math.isfinite(loss) else None,
        },
        "storage": "matrices fp16, vectors fp32; the scores are of the weights as stored",
        "software": {"predbn": predbn.__version__, "commit": commit(), "torch": torch.__version__},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": processes.count,
    }
    if processes.first:
        write_bytes(place.with_suffix(".json"), (json.dumps(card, indent=2) + "\n").encode())
    return card
