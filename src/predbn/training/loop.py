"""The training loop: several runs side by side on one device, with checkpoints and logs.

Every run gives the same bits as it would alone: runs share only the data and the idle time of the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from predbn.common import ProgressWithNote, TrainingError, first_line

from .run_files import read_checkpoint, run_file, write_checkpoint, write_log
from .scoring import backend_settings
from .trainer import Trainer


@dataclass
class TrainingRun:
    """A trainer, and the path of its files without a suffix; None to write no files."""

    trainer: Trainer
    path: Path | None = None

    def open(self, *, resume: bool) -> None:
        """Load the checkpoint, if there is one."""
        trainer = self.trainer
        if self.path is None or not (checkpoint := run_file(self.path, "checkpoint")).exists():
            return
        if not resume:
            raise TrainingError(
                f"{checkpoint} belongs to an interrupted run: use --resume to continue it, or delete it."
            )
        state = read_checkpoint(checkpoint, trainer.recipe.to_dict(), trainer.seed, trainer.device)
        try:
            trainer.load_state_dict(state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = first_line(error)
            raise TrainingError(
                f"{checkpoint} does not fit the network ({reason}): delete it to start again."
            ) from None

    def end_epoch(self, seconds: float, checkpoint_steps: int) -> None:
        """Write the log, and a checkpoint if one is due."""
        trainer = self.trainer
        trainer.metrics["seconds"] = seconds
        if self.path is not None and trainer.group.is_first:
            write_log(run_file(self.path, "csv"), trainer.log)
        if not trainer.diverged:
            self.save_if_due(checkpoint_steps)

    def save_if_due(self, checkpoint_steps: int) -> None:
        """Write a checkpoint after every `checkpoint_steps` steps. All processes of a group have to call it."""
        trainer = self.trainer
        is_due = (trainer.epoch * trainer.steps + trainer.step) % checkpoint_steps == 0 or trainer.finished
        if self.path is not None and is_due:
            state = trainer.state_dict()
            if trainer.group.is_first:
                write_checkpoint(run_file(self.path, "checkpoint"), state)


def train_side_by_side(
    runs: Sequence[TrainingRun],
    *,
    resume: bool = False,
    checkpoint_steps: int = 1000,
    on_step: Callable[[], object] = lambda: None,
) -> None:
    """Train every run to its last epoch.

    A run with a path writes a checkpoint every `checkpoint_steps` steps and after the last epoch; `resume` continues
    from it. A run that diverges is not trained further. `on_step` is called after each step of all runs.
    """
    if checkpoint_steps < 1:
        raise TrainingError(f"Expected checkpoint_steps to be at least 1, but got {checkpoint_steps}.")
    with ExitStack() as stack:
        if any(run.trainer.deterministic for run in runs):
            stack.enter_context(backend_settings(torch.backends.cudnn, deterministic=True, benchmark=False))
        for run in runs:
            stack.callback(run.trainer.close)
            run.open(resume=resume)
        while unfinished := [run for run in runs if not run.trainer.finished]:
            # Resumed runs may be ahead: they wait until the others have caught up.
            epoch = min(run.trainer.epoch for run in unfinished)
            active = [run for run in unfinished if run.trainer.epoch == epoch]
            start = time.perf_counter()
            run_epoch(active, checkpoint_steps=checkpoint_steps, on_step=on_step)
            for run in active:
                run.trainer.log.append({"epoch": run.trainer.epoch, **run.trainer.evaluate()})
            seconds = time.perf_counter() - start
            for run in active:
                run.end_epoch(seconds, checkpoint_steps)
            on_step()


def run_epoch(
    runs: Sequence[TrainingRun], *, checkpoint_steps: int = 1000, on_step: Callable[[], object] = lambda: None
) -> None:
    """Train the runs to the end of their epoch, one step of each in turn. The last step is not reported."""
    trainers = [run.trainer for run in runs]
    for trainer in trainers:
        trainer.begin_epoch()
    while True:
        unfinished = [run for run in runs if run.trainer.step < run.trainer.steps]
        for run in unfinished:
            run.trainer.train_step()
            run.trainer.step += 1
        if all(trainer.step == trainer.steps for trainer in trainers):
            break
        for run in unfinished:
            if run.trainer.step < run.trainer.steps:
                run.save_if_due(checkpoint_steps)
        on_step()
    for trainer in trainers:
        trainer.epoch, trainer.step = trainer.epoch + 1, 0


def report_steps(progress: ProgressWithNote | None, trainers: Sequence[Trainer], *, done: int, networks: int) -> None:
    """Report the steps of `networks` networks, `done` of which were trained before these trainers."""
    if progress is None:
        return
    first = trainers[0]
    epochs = first.recipe.epochs
    steps = epochs * first.steps
    note = f"epoch {min(first.epoch + 1, epochs)} of {epochs}"
    values = [trainer.metrics[first.headline] for trainer in trainers if trainer.metrics]
    if values:
        note += f", {first.headline.replace('_', ' ')} {sum(values) / len(values):.4f}"
    current = sum(trainer.epoch * trainer.steps + trainer.step for trainer in trainers)
    progress(done * steps + current, networks * steps, note)
