"""Random search over the hyperparameters of the optimiser, in the paper's ranges, several trials side by side.

A trial is a file `<number>.json` in the folder of the study, so that an interrupted search continues where it stopped.
Its point depends only on the seed and its number, and the seed of its network is its number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from predbn.common import ProgressWithNote, TrainingError, lock_folder, read_json, write_json

from ..loop import TrainingRun, report_steps, train_side_by_side
from ..recipes import Cifar10Recipe
from ..run_files import check_same_recipe
from .trainer import Cifar10Data, Cifar10Trainer

SEARCH_RANGES = {
    "learning_rate": (1e-3, 1.0),
    "one_minus_momentum": (1e-2, 0.15),
    "adam_eps": (1e-8, 1e-5),
    "weight_decay": (1e-5, 1e-3),
}
"""All on a logarithmic scale. The first three are the paper's for CIFAR-10; it does not mention weight decay."""

DECOUPLED_RANGE = (1e-2, 1.0)
"""The range of `weight_decay` if it is decoupled."""

_GUESSING = 0.1
"""The accuracy of a trial that diverges: it is complete too, and says where not to look."""

Point = dict[str, float]
"""A value for each of SEARCH_RANGES."""


def draw_points(
    count: int, *, seed: int, decoupled: bool = False, ranges: Mapping[str, tuple[float, float]] | None = None
) -> dict[int, Point]:
    """Points by trial, uniform on the logarithmic scale and rounded to four digits; `ranges` replaces the paper's."""
    default = {"weight_decay": DECOUPLED_RANGE} if decoupled else {}
    limits = {**SEARCH_RANGES, **default, **(ranges or {})}

    def draw(name: str, number: int) -> float:
        low, high = limits[name]
        generator = np.random.RandomState(zlib.crc32(f"{seed}/{number}/{name}".encode()))
        drawn = math.exp(generator.uniform(math.log(low), math.log(high)))
        return min(high, max(low, float(f"{drawn:.4g}")))

    return {number: {name: draw(name, number) for name in limits} for number in range(count)}


def recipe_at(recipe: Cifar10Recipe, point: Mapping[str, Any]) -> Cifar10Recipe:
    """The recipe with the numbers of a point, or of a row of the table."""
    numbers = {name: point[name] for name in SEARCH_RANGES}
    momentum = float(f"{1 - numbers.pop('one_minus_momentum'):.4g}")
    return replace(recipe, momentum=momentum, **numbers)


def run_search(
    recipe: Cifar10Recipe,
    points: Mapping[int, Point],
    data: Cifar10Data,
    folder: Path,
    *,
    side_by_side: int,
    progress: ProgressWithNote | None = None,
) -> list[dict[str, Any]]:
    """Train a network at every point that has no file in the folder yet, and return the table of the trials.

    The rows, best first, have the point, the epochs, and the validation accuracy and loss after the last epoch.
    """
    paths = {number: folder / f"{number}.json" for number in points}
    with lock_folder(folder, error=TrainingError):
        rows = [_read_trial(path, recipe_at(recipe, points[n])) for n, path in paths.items() if path.exists()]
        pending = [number for number, path in paths.items() if not path.exists()]
        for start in range(0, len(pending), side_by_side):
            numbers = pending[start : start + side_by_side]
            trainers = [Cifar10Trainer(recipe_at(recipe, points[number]), number, data) for number in numbers]
            train_side_by_side(
                [TrainingRun(trainer) for trainer in trainers],
                on_step=partial(report_steps, progress, trainers, done=len(rows), networks=len(points)),
            )
            for trainer in trainers:
                row = {"trial": trainer.seed, **points[trainer.seed], **_scores(trainer)}
                write_json(paths[trainer.seed], {"recipe": trainer.recipe.to_dict(), "row": row})
                rows.append(row)
        return sorted(rows, key=lambda row: (-row["validation_accuracy"], row["trial"]))


def _read_trial(path: Path, recipe: Cifar10Recipe) -> dict[str, Any]:
    remedy = "delete it to repeat the trial"
    trial = read_json(path, error=TrainingError, remedy=remedy)
    if not isinstance(trial.get("recipe"), dict) or not isinstance(trial.get("row"), dict):
        raise TrainingError(f"{path} is not a trial of a search: {remedy}.")
    check_same_recipe(path, trial["recipe"], recipe.to_dict())
    row: dict[str, Any] = trial["row"]
    return row


def _scores(trainer: Cifar10Trainer) -> dict[str, Any]:
    accuracy, loss = (trainer.metrics[name] for name in ("validation_accuracy", "validation_loss"))
    return {
        "epochs": trainer.recipe.epochs,
        "validation_accuracy": _GUESSING if trainer.diverged else round(accuracy, 4),
        "validation_loss": None if trainer.diverged else float(f"{loss:.4g}"),
        "diverged": trainer.diverged,
    }
