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

from predbn.training import Run, Trainee, TrainingError, train_together
from predbn.training.cohort import Epoch

from .tiny import TINY, same_weights

pytestmark = pytest.mark.usefixtures("small_network")
ROOT = Path(__file__).parents[2]


def alone(data, recipe=TINY, seed=0):
    ((trainee, epoch),) = train_together([Run(recipe, seed)], data)
    return trainee, epoch


class Interrupted(Exception):
    pass


def interrupt_after(number):
    def on_epoch(epochs):
        if epochs[0].epoch == number:
            raise Interrupted

    return on_epoch


def test_a_run_among_others_is_the_run_alone(data):
    recipes = [TINY, replace(TINY, norm="group"), replace(TINY, epochs=2), replace(TINY, batch_size=5)]
    together = train_together([Run(recipe, seed) for seed, recipe in enumerate(recipes)], data)
    for seed, ((trainee, epoch), recipe) in enumerate(zip(together, recipes, strict=True)):
        other, last = alone(data, recipe, seed)
        assert same_weights(trainee, other)
        assert epoch == last
        assert epoch.epoch == trainee.epoch == recipe.epochs


@pytest.mark.parametrize(("checkpoint_every", "kept"), [(1, 3), (2, 2), (10, 0)])
def test_a_resumed_run_is_the_uninterrupted_one(data, tmp_path, checkpoint_every, kept):
    runs = [Run(TINY, seed, tmp_path / str(seed)) for seed in (0, 1)]
    options = {"checkpoint_every": checkpoint_every}
    with pytest.raises(Interrupted):
        train_together(runs, data, on_epoch=interrupt_after(3), **options)
    seen = []
    resumed = train_together(runs, data, resume=True, on_epoch=lambda e: seen.append(e[0].epoch), **options)
    assert seen == list(range(kept + 1, 5))
    for run, (trainee, epoch) in zip(runs, resumed, strict=True):
        other, last = alone(data, seed=run.seed)
        assert same_weights(trainee, other)
        assert replace(epoch, run=last.run) == last
        log = pd.read_csv(tmp_path / f"{run.seed}.csv")
        assert log["epoch"].tolist() == [1, 2, 3, 4]
        assert log["learning_rate"].tolist() == pytest.approx([TINY.rate(epoch) for epoch in range(4)])
        assert log["validation_loss"].iloc[-1] == pytest.approx(last.validation_loss, rel=1e-5)


def test_runs_that_stand_at_different_epochs_go_on_together(data, tmp_path):
    runs = [Run(TINY, seed, tmp_path / str(seed)) for seed in (0, 1)]
    with pytest.raises(Interrupted):
        train_together(runs[:1], data, checkpoint_every=1, on_epoch=interrupt_after(2))
    sizes = []
    trained = train_together(runs, data, resume=True, on_epoch=lambda epochs: sizes.append(len(epochs)))
    assert sizes == [1, 1, 2, 2]
    assert all(same_weights(trainee, alone(data, seed=seed)[0]) for seed, (trainee, _) in enumerate(trained))


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
import predbn.training.trainee as trainee
from predbn.training import Run, TrainingSet, checkpoint, train_together
from tests.training.tiny import PICTURES, TINY, small_resnet

torch.set_num_threads(1)
trainee.resnet20, trainee.SIGNED = small_resnet, PICTURES
where, place, images = sys.argv[1], Path(sys.argv[2]), torch.load(sys.argv[3])
calls = 0

def deadly(function, number):
    def call(*arguments):
        global calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call

if where == "step":
    trainee.Trainee.step = deadly(trainee.Trainee.step, 6)
else:
    checkpoint.finish = deadly(checkpoint.finish, 3)
train_together([Run(TINY, 0, place)], TrainingSet(*images), checkpoint_every=1)
"""


@pytest.mark.parametrize("where", ["step", "checkpoint"])
def test_a_run_killed_in_the_middle_goes_on_bit_for_bit(data, sets, tmp_path, where):
    images = tmp_path / "images.pt"
    torch.save((sets.train.images, sets.train.labels, sets.validation.images, sets.validation.labels), images)
    place = tmp_path / "runs" / "0"
    command = [sys.executable, "-c", KILLED, where, str(place), str(images)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen = []
    run = Run(TINY, 0, place)
    ((trainee, epoch),) = train_together([run], data, resume=True, on_epoch=lambda e: seen.append(e[0].epoch))
    assert seen == [3, 4]
    other, last = alone(data)
    assert same_weights(trainee, other)
    assert replace(epoch, run=last.run) == last
    assert pd.read_csv(tmp_path / "runs" / "0.csv")["epoch"].tolist() == [1, 2, 3, 4]
    assert sorted(path.name for path in place.parent.iterdir()) == ["0.checkpoint", "0.csv"]


def test_a_run_that_was_begun_is_not_overwritten(data, tmp_path):
    run = Run(TINY, 0, tmp_path / "0")
    train_together([run], data)
    with pytest.raises(TrainingError, match=r"0\.checkpoint is of a run that was begun: give --resume"):
        train_together([run], data)
    ((trainee, epoch),) = train_together([run], data, resume=True)
    assert (trainee.epoch, epoch) == (4, None)
    with pytest.raises(TrainingError, match=r"is of a run with learning_rate 0\.01, not 0\.5"):
        train_together([replace(run, recipe=replace(TINY, learning_rate=0.5))], data, resume=True)


def test_a_diverged_run_stops_and_spoils_no_other(data, tmp_path, monkeypatch):
    real = Trainee.step

    def step(self):
        if self.seed == 1 and self.epoch == 1:
            self.network.fc.bias.data.fill_(float("nan"))
        real(self)

    monkeypatch.setattr(Trainee, "step", step)
    runs = [Run(TINY, seed, tmp_path / str(seed)) for seed in (0, 1)]
    (good, last), (bad, end) = train_together(runs, data, checkpoint_every=2)
    assert (bad.epoch, end.epoch, end.diverged) == (2, 2, True)
    assert not (tmp_path / "1.checkpoint").exists()
    assert not last.diverged
    assert same_weights(good, alone(data)[0])


@pytest.mark.parametrize(("loss", "validation_loss"), [(float("nan"), 1.0), (1.0, float("inf"))])
def test_divergence(loss, validation_loss):
    assert Epoch(Run(TINY, 0), 1, loss, 0.1, validation_loss, 0.1).diverged


def test_what_cannot_be_trained(data):
    with pytest.raises(TrainingError, match=r"16 training images do not fill a batch of 17\."):
        alone(data, replace(TINY, batch_size=17))
    with pytest.raises(TrainingError, match="checkpoint_every is 0"):
        train_together([Run(TINY, 0)], data, checkpoint_every=0)
    assert train_together([], data) == []


def test_algorithms_are_as_they_were_afterwards(data):
    with torch.backends.cudnn.flags(deterministic=False, benchmark=True):
        seen = []
        train_together(
            [Run(replace(TINY, epochs=1), 0)],
            data,
            on_epoch=lambda e: seen.append((torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)),
        )
        assert seen == [(True, False)]
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (False, True)
