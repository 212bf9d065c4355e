"""Runs side by side, alone, interrupted, killed: the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from predbn.training import TrainingError
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.loop import TrainingRun, report_steps, train_side_by_side

from .tiny import TINY, same_metrics, same_weights

pytestmark = pytest.mark.usefixtures("small_network")
ROOT = Path(__file__).parents[2]


def alone(data, recipe=TINY, seed=0):
    trainer = Cifar10Trainer(recipe, seed, data)
    train_side_by_side([TrainingRun(trainer)])
    return trainer


def make_runs(data, folder, seeds=(0, 1)):
    return [TrainingRun(Cifar10Trainer(TINY, seed, data), folder / str(seed)) for seed in seeds]


class Interrupted(Exception):
    pass


def interrupt_after(epoch):
    def on_epoch(trainers):
        if trainers[0].epoch == epoch:
            raise Interrupted

    return on_epoch


def test_a_run_among_others_is_the_run_alone(data):
    recipes = [TINY, replace(TINY, norm="group"), replace(TINY, epochs=2), replace(TINY, batch_size=5)]
    trainers = [Cifar10Trainer(recipe, seed, data) for seed, recipe in enumerate(recipes)]
    train_side_by_side([TrainingRun(trainer) for trainer in trainers])
    for trainer in trainers:
        other = alone(data, trainer.recipe, trainer.seed)
        assert same_weights(trainer, other)
        assert same_metrics(trainer, other)
        assert trainer.metrics["epoch"] == trainer.epoch == trainer.recipe.epochs


@pytest.mark.parametrize(("checkpoint_epochs", "kept"), [(1, 3), (2, 2), (10, 0)])
def test_a_resumed_run_is_the_uninterrupted_one(data, tmp_path, checkpoint_epochs, kept):
    options = {"checkpoint_epochs": checkpoint_epochs}
    with pytest.raises(Interrupted):
        train_side_by_side(make_runs(data, tmp_path), on_epoch=interrupt_after(3), **options)
    epochs, runs = [], make_runs(data, tmp_path)
    train_side_by_side(runs, resume=True, on_epoch=lambda trainers: epochs.append(trainers[0].epoch), **options)
    assert epochs == list(range(kept + 1, 5))
    for run in runs:
        other = alone(data, seed=run.trainer.seed)
        assert same_weights(run.trainer, other)
        assert same_metrics(run.trainer, other)
        log = pd.read_csv(tmp_path / f"{run.trainer.seed}.csv")
        assert log["epoch"].tolist() == [1, 2, 3, 4]
        assert log["learning_rate"].tolist() == pytest.approx([TINY.learning_rate_at(epoch) for epoch in range(4)])
        assert log["validation_loss"].iloc[-1] == pytest.approx(other.metrics["validation_loss"], rel=1e-5)


def test_runs_at_different_epochs_continue_together(data, tmp_path):
    with pytest.raises(Interrupted):
        train_side_by_side(make_runs(data, tmp_path, [0]), on_epoch=interrupt_after(2))
    sizes, runs = [], make_runs(data, tmp_path)
    train_side_by_side(runs, resume=True, on_epoch=lambda trainers: sizes.append(len(trainers)))
    assert sizes == [1, 1, 2, 2]
    assert all(same_weights(run.trainer, alone(data, seed=run.trainer.seed)) for run in runs)


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from predbn.common import files
from predbn.data import Images
from predbn.training.cifar10 import trainer
from predbn.training.loop import TrainingRun, train_side_by_side
from tests.training.tiny import DEVICE, PREPROCESSING, TINY, small_resnet

torch.set_num_threads(1)
trainer.resnet20, trainer.SIGNED = small_resnet, PREPROCESSING
where, path = sys.argv[1], Path(sys.argv[2])
train, validation = (
    Images(images, labels, torch.arange(len(labels)), tuple("0123456789"), "images")
    for images, labels in torch.load(sys.argv[3])
)
calls = 0

def kill_at(number, function):
    def call(*arguments):
        global calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call

if where == "step":
    trainer.Cifar10Trainer.train_step = kill_at(6, trainer.Cifar10Trainer.train_step)
else:
    # the first file is the log, then there is one checkpoint per epoch
    files.finish_partial = kill_at(4, files.finish_partial)
data = trainer.Cifar10Data(train, validation, validation, DEVICE)
train_side_by_side([TrainingRun(trainer.Cifar10Trainer(TINY, 0, data), path)])
"""


@pytest.mark.parametrize("where", ["step", "checkpoint"])
def test_a_killed_run_resumes_bit_for_bit(data, tmp_path, where):
    images = tmp_path / "images.pt"
    torch.save([(part.images, part.labels) for part in (data.train, data.validation)], images)
    path = tmp_path / "runs" / "0"
    command = [sys.executable, "-c", KILLED, where, str(path), str(images)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    epochs, run = [], TrainingRun(Cifar10Trainer(TINY, 0, data), path)
    train_side_by_side([run], resume=True, on_epoch=lambda trainers: epochs.append(trainers[0].epoch))
    assert epochs == [3, 4]
    other = alone(data)
    assert same_weights(run.trainer, other)
    assert same_metrics(run.trainer, other)
    assert pd.read_csv(tmp_path / "runs" / "0.csv")["epoch"].tolist() == [1, 2, 3, 4]
    assert sorted(file.name for file in path.parent.iterdir()) == ["0.checkpoint", "0.csv"]


def test_an_interrupted_run_is_not_overwritten(data, tmp_path):
    train_side_by_side(make_runs(data, tmp_path, [0]))
    with pytest.raises(TrainingError, match=r"0\.checkpoint belongs to an interrupted run: use --resume"):
        train_side_by_side(make_runs(data, tmp_path, [0]))
    (run,) = make_runs(data, tmp_path, [0])
    train_side_by_side([run], resume=True)
    assert (run.trainer.epoch, run.trainer.metrics) == (4, {})
    other = Cifar10Trainer(replace(TINY, learning_rate=0.5), 0, data)
    with pytest.raises(TrainingError, match=r"belongs to a run with learning_rate 0\.01, not 0\.5"):
        train_side_by_side([TrainingRun(other, tmp_path / "0")], resume=True)


def test_a_diverged_run_stops_and_does_not_affect_others(data, tmp_path, monkeypatch):
    real = Cifar10Trainer.train_step

    def train_step(self):
        if self.seed == 1 and self.epoch == 1:
            self.network.fc.bias.data.fill_(float("nan"))
        real(self)

    monkeypatch.setattr(Cifar10Trainer, "train_step", train_step)
    good, bad = runs = make_runs(data, tmp_path)
    train_side_by_side(runs, checkpoint_epochs=2)
    assert (bad.trainer.epoch, bad.trainer.metrics["epoch"], bad.trainer.diverged) == (2, 2, True)
    assert not (tmp_path / "1.checkpoint").exists()
    assert not good.trainer.diverged
    assert same_weights(good.trainer, alone(data))


@pytest.mark.parametrize(("loss", "validation_loss"), [(float("nan"), 1.0), (1.0, float("inf"))])
def test_divergence(data, loss, validation_loss):
    trainer = Cifar10Trainer(TINY, 0, data)
    assert not trainer.diverged
    trainer.metrics = {"loss": loss, "validation_loss": validation_loss}
    assert trainer.diverged
    assert trainer.finished


def test_what_cannot_be_trained(data):
    with pytest.raises(TrainingError, match=r"16 training examples do not fill a batch of 17\."):
        alone(data, replace(TINY, batch_size=17))
    for name in ("checkpoint_epochs", "checkpoint_steps"):
        with pytest.raises(TrainingError, match=f"{name} is 0"):
            train_side_by_side([], **{name: 0})


def test_progress_counts_the_steps_of_all_networks(data):
    trainers = [Cifar10Trainer(replace(TINY, epochs=2), seed, data) for seed in (0, 1)]
    reports = []

    def progress(done, total, note):
        reports.append((done, total, note))

    train_side_by_side(
        [TrainingRun(trainer) for trainer in trainers],
        on_step=lambda: report_steps(progress, trainers, done=1, networks=4),
    )
    assert [report[:2] for report in reports] == [(done, 16) for done in (6, 8, 10, 12)]
    assert reports[0][2] == "epoch 1 of 2"
    accuracy = sum(trainer.metrics["validation_accuracy"] for trainer in trainers) / 2
    assert reports[-1][2] == f"epoch 2 of 2, validation accuracy {accuracy:.4f}"


def test_cudnn_settings_are_restored(data):
    with torch.backends.cudnn.flags(deterministic=False, benchmark=True):
        settings = []
        train_side_by_side(
            [TrainingRun(Cifar10Trainer(replace(TINY, epochs=1), 0, data))],
            on_epoch=lambda _: settings.append((torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)),
        )
        assert settings == [(True, False)]
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (False, True)
