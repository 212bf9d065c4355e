"""Runs side by side, alone, interrupted, killed: the same bits."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from predbn.training import TrainingError, train_cifar10
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.loop import TrainingRun, report_steps, train_side_by_side

from .tiny import TINY, Interrupted, interrupt_after, same_metrics, same_weights

pytestmark = pytest.mark.usefixtures("small_network")


def alone(data, recipe=TINY, seed=0):
    trainer = Cifar10Trainer(recipe, seed, data)
    train_side_by_side([TrainingRun(trainer)])
    return trainer


def make_runs(data, folder, seeds=(0, 1)):
    return [TrainingRun(Cifar10Trainer(TINY, seed, data), folder / str(seed)) for seed in seeds]


def resume(runs, **options):
    """Resume the runs; gives the number of steps (of all runs together) that this took."""
    steps = []
    train_side_by_side(runs, resume=True, on_step=lambda: steps.append(1), **options)
    return len(steps)


def check_equal(trainer, other):
    assert same_weights(trainer, other)
    assert same_metrics(trainer, other)


def test_a_run_among_others_is_the_run_alone(data):
    recipes = [TINY, replace(TINY, norm="group"), replace(TINY, epochs=2), replace(TINY, batch_size=5)]
    trainers = [Cifar10Trainer(recipe, seed, data) for seed, recipe in enumerate(recipes)]
    train_side_by_side([TrainingRun(trainer) for trainer in trainers])
    for trainer in trainers:
        check_equal(trainer, alone(data, trainer.recipe, trainer.seed))
        assert trainer.metrics["epoch"] == trainer.epoch == trainer.recipe.epochs


@pytest.mark.parametrize(("checkpoint_steps", "kept"), [(1, 5), (2, 4), (100, 0)])
def test_a_resumed_run_is_the_uninterrupted_one(data, tmp_path, checkpoint_steps, kept):
    """Interrupted in the middle of the third of four epochs, of two steps each."""
    with pytest.raises(Interrupted):
        train_side_by_side(make_runs(data, tmp_path), on_step=interrupt_after(5), checkpoint_steps=checkpoint_steps)
    runs = make_runs(data, tmp_path)
    assert resume(runs, checkpoint_steps=checkpoint_steps) == 8 - kept
    for run in runs:
        other = alone(data, seed=run.trainer.seed)
        check_equal(run.trainer, other)
        log = pd.read_csv(tmp_path / f"{run.trainer.seed}.csv")
        assert log["epoch"].tolist() == [1, 2, 3, 4]
        assert log["learning_rate"].tolist() == pytest.approx([TINY.learning_rate_at(epoch) for epoch in range(4)])
        assert log["validation_loss"].iloc[-1] == pytest.approx(other.metrics["validation_loss"], rel=1e-5)


def test_runs_at_different_epochs_continue_together(data, tmp_path):
    with pytest.raises(Interrupted):
        train_side_by_side(make_runs(data, tmp_path, [0]), on_step=interrupt_after(4), checkpoint_steps=2)
    runs = make_runs(data, tmp_path)
    assert resume(runs) == 8
    for run in runs:
        check_equal(run.trainer, alone(data, seed=run.trainer.seed))


def test_an_interrupted_run_is_not_overwritten(data, tmp_path):
    train_side_by_side(make_runs(data, tmp_path, [0]))
    with pytest.raises(TrainingError, match=r"0\.checkpoint belongs to an interrupted run: use --resume"):
        train_side_by_side(make_runs(data, tmp_path, [0]))
    (run,) = make_runs(data, tmp_path, [0])
    assert resume([run]) == 0
    assert (run.trainer.epoch, run.trainer.metrics["epoch"]) == (4, 4)
    other = Cifar10Trainer(replace(TINY, learning_rate=0.5), 0, data)
    with pytest.raises(TrainingError, match=r"belongs to a run with learning_rate 0\.01, not 0\.5"):
        resume([TrainingRun(other, tmp_path / "0")])


def test_a_diverged_run_stops_and_does_not_affect_others(data, tmp_path, monkeypatch):
    real = Cifar10Trainer.train_step

    def train_step(self):
        if self.seed == 1 and self.epoch == 1:
            self.network.fc.bias.data.fill_(float("nan"))
        real(self)

    monkeypatch.setattr(Cifar10Trainer, "train_step", train_step)
    good, bad = runs = make_runs(data, tmp_path)
    train_side_by_side(runs, checkpoint_steps=4)
    assert (bad.trainer.epoch, bad.trainer.metrics["epoch"], bad.trainer.diverged) == (2, 2, True)
    assert not (tmp_path / "1.checkpoint").exists()
    assert not good.trainer.diverged
    assert same_weights(good.trainer, alone(data))


@pytest.mark.parametrize(("loss", "validation_loss"), [(float("nan"), 1.0), (1.0, float("inf"))])
def test_divergence(data, loss, validation_loss):
    trainer = Cifar10Trainer(TINY, 0, data)
    assert not trainer.diverged
    trainer.log.append({"loss": loss, "validation_loss": validation_loss})
    assert trainer.diverged
    assert trainer.finished


def test_what_cannot_be_trained(data):
    with pytest.raises(TrainingError, match="Expected batch_size to be at most the 16 training examples, but got 17"):
        alone(data, replace(TINY, batch_size=17))
    with pytest.raises(TrainingError, match="Expected checkpoint_steps to be at least 1, but got 0"):
        train_side_by_side([], checkpoint_steps=0)
    with pytest.raises(TrainingError, match="Expected side_by_side to be at least 1, but got 0"):
        train_cifar10(TINY, [0], data, Path(), side_by_side=0)


def test_progress_counts_the_steps_of_all_networks_and_cudnn_is_deterministic_meanwhile(data):
    trainers = [Cifar10Trainer(replace(TINY, epochs=2), seed, data) for seed in (0, 1)]
    reports, settings = [], []

    def on_step():
        settings.append((torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark))
        report_steps(lambda *report: reports.append(report), trainers, done=1, networks=4)

    with torch.backends.cudnn.flags(deterministic=False, benchmark=True):
        train_side_by_side([TrainingRun(trainer) for trainer in trainers], on_step=on_step)
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (False, True)
    assert settings == [(True, False)] * 4
    assert [report[:2] for report in reports] == [(done, 16) for done in (6, 8, 10, 12)]
    assert reports[0][2] == "epoch 1 of 2"
    accuracy = sum(trainer.metrics["validation_accuracy"] for trainer in trainers) / 2
    assert reports[-1][2] == f"epoch 2 of 2, validation accuracy {accuracy:.4f}"
