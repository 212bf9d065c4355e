"""The training loop: several runs side by side on one device, with checkpoints and logs.

Every run gives the same bits as it would alone: runs share only the data and the idle time of the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from predbn.common import ProgressWithNote, TrainingError, first_line

from .run_files import TrainingLog, read_checkpoint, run_file, write_checkpoint
from .trainer import Trainer, backend_settings


@dataclass
class TrainingRun:
    """A trainer, and the path of its files without a suffix; None to write no files."""

    trainer: Trainer
    path: Path | None = None
    _log: TrainingLog | None = field(default=None, init=False, repr=False)

    def open(self, *, resume: bool, tensorboard: bool) -> None:
        """Load the checkpoint, if there is one, and open the log."""
        trainer = self.trainer
        if self.path is None:
            return
        checkpoint = run_file(self.path, "checkpoint")
        if checkpoint.exists():
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
        if trainer.group.is_first:
            log = run_file(self.path, "csv")
            self._log = TrainingLog(log, epochs_done=trainer.epoch, tensorboard=tensorboard)

    def close(self) -> None:
        """Close the log and what the trainer has opened."""
        self.trainer.close()
        if self._log is not None:
            self._log.close()

    def end_epoch(self, seconds: float, checkpoint_epochs: int) -> None:
        """Append the metrics of the epoch to the log, and write a checkpoint if one is due."""
        trainer = self.trainer
        trainer.metrics["seconds"] = seconds
        if self._log is not None:
            self._log.append(trainer.metrics)
        is_due = trainer.epoch % checkpoint_epochs == 0 or trainer.finished
        if is_due and not trainer.diverged:
            self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Write the checkpoint. In a group of processes, all of them have to call it."""
        if self.path is not None:
            state = self.trainer.state_dict()
            if self.trainer.group.is_first:
                write_checkpoint(run_file(self.path, "checkpoint"), state)


def train_side_by_side(
    runs: Sequence[TrainingRun],
    *,
    resume: bool = False,
    checkpoint_epochs: int = 1,
    checkpoint_steps: int | None = None,
    tensorboard: bool = False,
    on_step: Callable[[], object] = lambda: None,
    on_epoch: Callable[[list[Trainer]], object] = lambda trainers: None,
) -> None:
    """Train every run to its last epoch.

    A run with a path writes a checkpoint every `checkpoint_epochs` epochs and after the last one, and within an epoch
    every `checkpoint_steps` steps; `resume` continues from it. A run that diverges is not trained further. `on_step`
    is called after each step of all runs, `on_epoch` with the trainers that have just ended an epoch.
    """
    for name, value in (("checkpoint_epochs", checkpoint_epochs), ("checkpoint_steps", checkpoint_steps)):
        if value is not None and value < 1:
            raise TrainingError(f"{name} is {value}, but it must be at least 1.")
    with ExitStack() as stack:
        if any(run.trainer.deterministic for run in runs):
            stack.enter_context(backend_settings(torch.backends.cudnn, deterministic=True, benchmark=False))
        for run in runs:
            stack.callback(run.close)
            run.open(resume=resume, tensorboard=tensorboard)
        while unfinished := [run for run in runs if not run.trainer.finished]:
            # Resumed runs may be ahead: they wait until the others have caught up.
            epoch = min(run.trainer.epoch for run in unfinished)
            active = [run for run in unfinished if run.trainer.epoch == epoch]
            start = time.perf_counter()
            run_epoch(active, checkpoint_steps=checkpoint_steps, on_step=on_step)
            for run in active:
                run.trainer.queue_evaluation()
            for run in active:
                run.trainer.metrics = {"epoch": run.trainer.epoch, **run.trainer.evaluate()}
            seconds = time.perf_counter() - start
            for run in active:
                run.end_epoch(seconds, checkpoint_epochs)
            on_step()
            on_epoch([run.trainer for run in active])


def run_epoch(
    runs: Sequence[TrainingRun], *, checkpoint_steps: int | None = None, on_step: Callable[[], object] = lambda: None
) -> None:
    """Train the runs to the end of their epoch, one step of each in turn. The last step is not reported."""
    trainers = [run.trainer for run in runs]
    for trainer in trainers:
        trainer.begin_epoch()
    while True:
        for trainer in trainers:
            if trainer.step < trainer.steps:
                trainer.train_step()
                trainer.step += 1
        if all(trainer.step >= trainer.steps for trainer in trainers):
            break
        for run in runs:
            if checkpoint_steps is not None and run.trainer.step % checkpoint_steps == 0:
                run.save_checkpoint()
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
