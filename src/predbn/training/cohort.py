"""Several runs trained side by side on one device.

Each run is what it would be alone, bit for bit: nothing is shared but the images and the GPU's idle time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from . import checkpoint
from .errors import TrainingError
from .log import Log
from .recipe import Recipe
from .trainee import Trainee, TrainingSet

__all__ = ["Epoch", "Run", "one_epoch", "train_together"]


@dataclass(frozen=True)
class Run:
    """One network to be trained; `place` is where its files go, without a suffix, or None for none."""

    recipe: Recipe
    seed: int
    place: Path | None = None


@dataclass(frozen=True)
class Epoch:
    """What an epoch of a run ended with."""

    run: Run
    epoch: int
    loss: float
    accuracy: float
    validation_loss: float
    validation_accuracy: float

    @property
    def diverged(self) -> bool:
        """Whether the loss is no longer a number."""
        return not (math.isfinite(self.loss) and math.isfinite(self.validation_loss))


def train_together(
    runs: Sequence[Run],
    data: TrainingSet,
    *,
    resume: bool = False,
    checkpoint_every: int = 10,
    tensorboard: bool = False,
    on_epoch: Callable[[list[Epoch]], None] = lambda epochs: None,
    fast: bool = True,
) -> list[tuple[Trainee, Epoch | None]]:
    """Train every run to its last epoch, and give each network with its last epoch.

    With a place, a run writes `<place>.csv` and, every few epochs, `<place>.checkpoint`, from which `resume` goes
    on. A run whose loss stops being a number is not trained further. `on_epoch` is called with what the runs that
    took part in an epoch ended it with.
    """
    with _repeatable():
        pairs = [_start(run, data, resume=resume, tensorboard=tensorboard, fast=fast) for run in runs]
        last: dict[int, Epoch] = {}
        for number in range(
            min((t.epoch for t, _ in pairs), default=0), max((r.recipe.epochs for r in runs), default=0)
        ):
            active = [
                (i, t, log)
                for i, (t, log) in enumerate(pairs)
                if t.epoch == number < t.recipe.epochs and not (i in last and last[i].diverged)
            ]
            if not active:
                continue
            start = time.perf_counter()
            one_epoch([t for _, t, _ in active])
            ended = [(i, _ended(runs[i], t)) for i, t, _ in active]
            seconds = time.perf_counter() - start
            for (i, t, log), (_, epoch) in zip(active, ended, strict=True):
                last[i] = epoch
                if log is not None:
                    log.append(_row(epoch, t.recipe, seconds))
                place = runs[i].place
                if place is not None and (t.epoch % checkpoint_every == 0 or t.epoch == t.recipe.epochs):
                    checkpoint.write(place.with_name(place.name + ".checkpoint"), t.state())
            on_epoch([epoch for _, epoch in ended])
        return [(t, last.get(i)) for i, (t, _) in enumerate(pairs)]


def _start(run: Run, data: TrainingSet, *, resume: bool, tensorboard: bool, fast: bool) -> tuple[Trainee, Log | None]:
    if len(data) < run.recipe.batch_size:
        raise TrainingError(f"{len(data)} training images do not fill a batch of {run.recipe.batch_size}.")
    trainee = Trainee(run.recipe, run.seed, data, fast=fast)
    if run.place is None:
        return trainee, None
    path = run.place.with_name(run.place.name + ".checkpoint")
    if path.exists():
        if not resume:
            raise TrainingError(f"{path} is of a run that was begun: give --resume to go on with it, or delete it.")
        trainee.load_state(checkpoint.read(path, run.recipe.describe(), run.seed, trainee.device))
    log = run.place.with_name(run.place.name + ".csv")
    return trainee, Log(log, done=trainee.epoch, tensorboard=tensorboard)


def one_epoch(trainees: list[Trainee]) -> None:
    """Take every run one epoch on, a step of each in turn."""
    for trainee in trainees:
        trainee.begin_epoch()
    for step in range(max(t.steps for t in trainees)):
        for trainee in trainees:
            if step < trainee.steps:
                trainee.step()
    for trainee in trainees:
        trainee.end_epoch()


def _ended(run: Run, trainee: Trainee) -> Epoch:
    correct, loss = trainee.validate()
    if trainee.stream is not None:
        trainee.stream.synchronize()
    seen, held_out = trainee.steps * run.recipe.batch_size, max(1, len(trainee.data.held_out))
    return Epoch(
        run,
        trainee.epoch,
        trainee.loss_sum.item() / trainee.steps,
        trainee.correct.item() / seen,
        loss.item() / held_out,
        correct.item() / held_out,
    )


def _row(epoch: Epoch, recipe: Recipe, seconds: float) -> dict[str, float]:
    return {
        "epoch": epoch.epoch,
        "learning_rate": recipe.rate(epoch.epoch - 1),
        "loss": epoch.loss,
        "accuracy": epoch.accuracy,
        "validation_loss": epoch.validation_loss,
        "validation_accuracy": epoch.validation_accuracy,
        "seconds": seconds,
    }


@contextmanager
def _repeatable() -> Iterator[None]:
    """Only algorithms that give the same bits every time, chosen without timing them."""
    backend = torch.backends.cudnn
    before = backend.deterministic, backend.benchmark
    backend.deterministic, backend.benchmark = True, False
    try:
        yield
    finally:
        backend.deterministic, backend.benchmark = before
