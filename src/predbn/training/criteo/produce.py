"""Train Criteo networks and leave them as files: weights, card and log a seed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import predbn
from predbn.common import TrainingError, commit, write_bytes
from predbn.data import Rows
from predbn.models import load_criteo
from predbn.models import write_weights as write

from .. import checkpoint
from ..log import Log
from .recipe import CriteoRecipe
from .trainee import CriteoTrainee, held_where_it_fits, score

__all__ = ["COLUMNS", "CriteoSets", "place_of", "produce_criteo"]

COLUMNS = (
    "epoch",
    "learning_rate",
    "loss",
    "validation_loss",
    "validation_auc",
    "validation_brier",
    "validation_ece",
    "seconds",
)


@dataclass(frozen=True)
class CriteoSets:
    """The three parts of the data."""

    train: Rows
    validation: Rows
    test: Rows


def place_of(out: Path, seed: int) -> Path:
    """Where the files of a run go, without a suffix."""
    return out / "criteo-mlp" / str(seed)


def produce_criteo(
    recipe: CriteoRecipe,
    seeds: Sequence[int],
    sets: CriteoSets,
    out: Path,
    *,
    device: torch.device | str = "cpu",
    resume: bool = False,
    checkpoint_every: int = 5000,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    on_network: Callable[[int, dict[str, Any]], None] = lambda seed, card: None,
) -> None:
    """Train the recipe with every seed, one after another, and write `<seed>.safetensors`, `.json` and `.csv`.

    Every `checkpoint_every` steps and after each epoch a run writes `<seed>.checkpoint`, from which `resume` goes on.
    Seeds whose weights are there are left alone with `resume`, and refused without. `on_step` hears of the steps done
    and those to do over all seeds.
    """
    place = torch.device(device)
    wanted = []
    for seed in seeds:
        weights = place_of(out, seed).with_suffix(".safetensors")
        if not weights.exists():
            wanted.append(seed)
        elif not resume:
            raise TrainingError(f"{weights} is there already: give --resume to keep it, or choose another --out.")
    if not wanted:
        return
    train = held_where_it_fits(sets.train, place)
    for number, seed in enumerate(wanted):
        trainee = CriteoTrainee(recipe, seed, train, place)
        log = _begin(trainee, place_of(out, seed), resume)
        each = recipe.epochs * trainee.steps

        def stepped(trainee: CriteoTrainee = trainee, before: int = number * each, total: int = each) -> None:
            on_step(before + trainee.epoch * trainee.steps + trainee.step, total * len(wanted))
            if trainee.step % checkpoint_every == 0:
                _keep(trainee, place_of(out, trainee.seed))

        while not trainee.finished:
            _one_epoch(trainee, sets.validation, log, place_of(out, seed), stepped)
        on_network(seed, _finish(trainee, sets, place_of(out, seed)))


def _begin(trainee: CriteoTrainee, place: Path, resume: bool) -> Log:
    path = place.with_name(place.name + ".checkpoint")
    if path.exists():
        if not resume:
            raise TrainingError(f"{path} is of a run that was begun: give --resume to go on with it, or delete it.")
        trainee.load_state(checkpoint.read(path, trainee.recipe.describe(), trainee.seed, trainee.device))
    return Log(place.with_name(place.name + ".csv"), done=trainee.epoch, columns=COLUMNS)


def _keep(trainee: CriteoTrainee, place: Path) -> None:
    checkpoint.write(place.with_name(place.name + ".checkpoint"), trainee.state())


def _one_epoch(trainee: CriteoTrainee, validation: Rows, log: Log, place: Path, on_step: Callable[[], None]) -> None:
    start, recipe = time.perf_counter(), trainee.recipe
    trainee.run_epoch(on_step)
    loss = trainee.loss_sum.item() / trainee.steps
    if not math.isfinite(loss):
        raise TrainingError(
            f"The network with seed {trainee.seed} diverged in epoch {trainee.epoch} (its loss is not a number): "
            "lower the learning rate."
        )
    found = score(trainee.model, validation, trainee.device)
    trainee.remember_if_best(found["nll"])
    steps = trainee.steps
    log.append(
        {
            "epoch": trainee.epoch,
            "learning_rate": recipe.rate(trainee.epoch * steps - 1, recipe.epochs * steps),
            "loss": loss,
            **{f"validation_{name}": found[key] for name, key in _VALIDATED.items()},
            "seconds": time.perf_counter() - start,
        }
    )
    _keep(trainee, place)


_VALIDATED = {"loss": "nll", "auc": "auc", "brier": "brier", "ece": "ece"}


def _finish(trainee: CriteoTrainee, sets: CriteoSets, place: Path) -> dict[str, Any]:
    """Write the best network, and score it as it was written."""
    recipe, weights = trainee.recipe, place.with_suffix(".safetensors")
    card: dict[str, Any] = {
        "architecture": "criteo-mlp",
        "sizes": recipe.sizes.to_dict(),
        "eps": recipe.eps,
        "seed": trainee.seed,
        "recipe": {"optimiser": "Adam", **recipe.describe()},
        "trained_on": f"{sets.train.name}: {len(sets.train):,} rows",
        "epochs_trained": trainee.epoch,
        "best_epoch": trainee.best["epoch"],
        "validation_nll": round(trainee.best["loss"], 6),
        "software": {"predbn": predbn.__version__, "commit": commit(), "torch": torch.__version__},
        "device": torch.cuda.get_device_name() if trainee.device.type == "cuda" else "cpu",
    }
    write(weights, trainee.best["network"], card)
    model = load_criteo(weights, device=trainee.device)
    found = {name: round(value, 6) for name, value in score(model, sets.test, trainee.device).items()}
    card["test"] = {"rows": len(sets.test), "sha256": sets.test.sums["rows"], **found}
    card["storage"] = "matrices fp16, vectors fp32; the scores are of the weights as stored"
    write_bytes(place.with_suffix(".json"), (json.dumps(card, indent=2) + "\n").encode())
    place.with_name(place.name + ".checkpoint").unlink(missing_ok=True)
    return card
