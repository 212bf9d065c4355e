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

from predbn.common import TrainingError

from . import checkpoint
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


@dataclass
class _Member:
    """A run on its way: what trains it, where it is written down, and what its last epoch ended with."""

    run: Run
    trainee: Trainee
    log: Log | None
    last: Epoch | None = None

    def takes_part(self, number: int) -> bool:
        diverged = self.last is not None and self.last.diverged
        return self.trainee.epoch == number < self.run.recipe.epochs and not diverged

    def record(self, epoch: Epoch, seconds: float, checkpoint_every: int) -> None:
        self.last = epoch
        if self.log is not None:
            self.log.append(_row(epoch, self.run.recipe, seconds))
        due = epoch.epoch % checkpoint_every == 0 or epoch.epoch == self.run.recipe.epochs
        if self.run.place is not None and due and not epoch.diverged:
            checkpoint.write(checkpoint.checkpoint_of(self.run.place), self.trainee.state())


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
    """Train every run to its last epoch, and give each network with the last epoch that it was trained for here.

    With a place, a run writes `<place>.csv` and, every few epochs, `<place>.checkpoint`, from which `resume` goes
    on. A run whose loss stops being a number is not trained further. `on_epoch` is called with what the runs that
    took part in an epoch ended it with. `fast` puts the kernels of this room to use on a GPU.
    """
    if checkpoint_every < 1:
        raise TrainingError(f"checkpoint_every is {checkpoint_every}, but it must be at least 1.")
    members: list[_Member] = []
    with _repeatable():
        try:
            for run in runs:
                members.append(_start(run, data, resume=resume, tensorboard=tensorboard, fast=fast))
            for number in range(max((run.recipe.epochs for run in runs), default=0)):
                active = [member for member in members if member.takes_part(number)]
                if not active:
                    continue
                start = time.perf_counter()
                one_epoch([member.trainee for member in active])
                ended = [_ended(member.run, member.trainee) for member in active]
                seconds = time.perf_counter() - start
                for member, epoch in zip(active, ended, strict=True):
                    member.record(epoch, seconds, checkpoint_every)
                on_epoch(ended)
        finally:
            for member in members:
                if member.log is not None:
                    member.log.close()
    return [(member.trainee, member.last) for member in members]


def _start(run: Run, data: TrainingSet, *, resume: bool, tensorboard: bool, fast: bool) -> _Member:
    if len(data) < run.recipe.batch_size:
        raise TrainingError(f"{len(data)} training images do not fill a batch of {run.recipe.batch_size}.")
    trainee = Trainee(run.recipe, run.seed, data, fast=fast)
    if run.place is None:
        return _Member(run, trainee, None)
    path = checkpoint.checkpoint_of(run.place)
    if path.exists():
        if not resume:
            raise TrainingError(f"{path} is of a run that was begun: give --resume to go on with it, or delete it.")
        trainee.load_state(checkpoint.read(path, run.recipe.describe(), run.seed, trainee.device))
    log = Log(run.place.with_name(f"{run.place.name}.csv"), done=trainee.epoch, tensorboard=tensorboard)
    return _Member(run, trainee, log)


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
    validation_accuracy, validation_loss = trainee.validate()
    return Epoch(
        run,
        trainee.epoch,
        trainee.loss_sum.item() / trainee.steps,
        trainee.correct.item() / (trainee.steps * run.recipe.batch_size),
        validation_loss,
        validation_accuracy,
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
