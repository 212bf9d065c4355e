from __future__ import annotations

import math
import os
import socket
import sys
from dataclasses import replace

import pytest

from predbn.common import MissingPackageError
from predbn.training import SEARCH_RANGES, TrainingError, best_recipe, enqueue_best, open_study, run_search, trial_table
from predbn.training.cifar10.search import DECOUPLED_RANGE
from predbn.training.cifar10.trainer import Cifar10Trainer

from ..tiny import TINY

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")
pytestmark = pytest.mark.usefixtures("small_network")
RECIPE = replace(TINY, epochs=1)
SPACE = {name: optuna.distributions.FloatDistribution(*ends, log=True) for name, ends in SEARCH_RANGES.items()}


@pytest.fixture
def storage(tmp_path):
    return str(tmp_path / "new" / "search.journal")


def params(study):
    """The points of the complete trials, whatever their numbers."""
    return sorted(tuple(trial.params.values()) for trial in study.trials if trial.value is not None)


def test_draws_depend_on_seed_number_and_name(tmp_path):
    points = []
    for name, seed, order in (("a", 0, SPACE), ("b", 0, dict(reversed(SPACE.items()))), ("c", 1, SPACE)):
        study = open_study(str(tmp_path / name), "s", seed=seed)
        points.append([dict(sorted(study.ask(order).params.items())) for _ in range(3)])
    assert points[0] == points[1]
    assert points[0] != points[2]
    assert len({point["learning_rate"] for point in points[0]}) == 3


def test_draws_are_uniform_on_a_logarithmic_scale(tmp_path):
    study = open_study(str(tmp_path / "s"), "s", seed=0)
    drawn = [study.ask(SPACE).params for _ in range(100)]
    for name, (low, high) in SEARCH_RANGES.items():
        places = [math.log(point[name] / low) / math.log(high / low) for point in drawn]
        assert 0 <= min(places) < 0.1
        assert 0.9 < max(places) <= 1
        assert abs(sum(places) / 100 - 0.5) < 4 * (1 / 12 / 100) ** 0.5


def fail(done, total, note):
    pytest.fail("the study was complete")


@pytest.mark.parametrize("database", [False, True])
def test_a_search_has_as_many_trials_as_asked_for(data, tmp_path, database):
    storage = f"sqlite:///{tmp_path}/search.db" if database else str(tmp_path / "search.journal")
    study, reports = open_study(storage, "s", seed=0), []
    run_search(
        study, RECIPE, data, trials=3, side_by_side=2, progress=lambda done, total, note: reports.append((done, total))
    )
    assert reports == [(2, 6), (4, 6), (5, 6), (6, 6)]
    assert [trial.number for trial in study.trials] == [0, 1, 2]
    again = open_study(storage, "s", seed=0)
    assert trial_table(again) == trial_table(study)
    run_search(again, RECIPE, data, trials=3, side_by_side=2, progress=fail)


def test_the_number_side_by_side_does_not_change_the_trials(data, tmp_path):
    tables = []
    for side_by_side in (1, 3):
        study = open_study(str(tmp_path / str(side_by_side)), "s", seed=0)
        run_search(study, RECIPE, data, trials=3, side_by_side=side_by_side)
        tables.append(trial_table(study))
    assert tables[0] == tables[1]


def test_an_interrupted_search_ends_as_an_uninterrupted_one(data, storage, tmp_path, monkeypatch):
    whole = open_study(str(tmp_path / "whole"), "s", seed=0)
    run_search(whole, RECIPE, data, trials=4, side_by_side=2)

    def interrupt(done, total, note):
        if done > 4:
            raise KeyboardInterrupt

    study = open_study(storage, "s", seed=0)
    with pytest.raises(KeyboardInterrupt):
        run_search(study, RECIPE, data, trials=4, side_by_side=2, progress=interrupt)
    assert len(trial_table(study)) == 2
    alive = open_study(storage, "s", seed=0)
    assert [trial.state.name for trial in alive.trials] == ["COMPLETE"] * 2 + ["RUNNING"] * 2
    monkeypatch.setattr("predbn.training.cifar10.search._is_alive", lambda process: process != os.getpid())
    study = open_study(storage, "s", seed=0)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2 + ["FAIL"] * 2 + ["WAITING"] * 2
    run_search(study, RECIPE, data, trials=4, side_by_side=2)
    assert params(study) == params(whole)
    values = [[row["validation_accuracy"] for row in trial_table(s)] for s in (study, whole)]
    losses = [sorted(row["validation_loss"] for row in trial_table(s)) for s in (study, whole)]
    assert values[0] == values[1]
    assert losses[0] == losses[1]


def test_trials_of_other_machines_are_not_touched(storage):
    study = open_study(storage, "s", seed=0)
    study.ask(SPACE).set_user_attr("worker", "elsewhere:1")
    study.ask(SPACE).set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
    study.ask(SPACE)
    assert {trial.state.name for trial in open_study(storage, "s", seed=0).trials} == {"RUNNING"}


def test_a_diverged_trial_has_the_accuracy_of_guessing(data, storage, monkeypatch):
    real = Cifar10Trainer.train_step

    def train_step(self):
        if self.seed == 1:
            self.network.fc.bias.data.fill_(float("nan"))
        real(self)

    monkeypatch.setattr(Cifar10Trainer, "train_step", train_step)
    study = open_study(storage, "s", seed=0)
    run_search(study, RECIPE, data, trials=2, side_by_side=2)
    rows = {row["trial"]: row for row in trial_table(study)}
    assert rows[1] | {"diverged": True, "validation_accuracy": 0.1, "validation_loss": None} == rows[1]
    assert rows[0]["diverged"] is False


def test_other_ranges_and_the_other_weight_decay(data, storage):
    study = open_study(storage, "s", seed=0)
    run_search(
        study, replace(RECIPE, decoupled=True), data, trials=2, side_by_side=2, ranges={"learning_rate": (2e-3, 3e-3)}
    )
    for row in trial_table(study):
        assert 2e-3 <= row["learning_rate"] <= 3e-3
        assert DECOUPLED_RANGE[0] <= row["weight_decay"] <= DECOUPLED_RANGE[1]
        assert SEARCH_RANGES["adam_eps"][0] <= row["adam_eps"] <= SEARCH_RANGES["adam_eps"][1]


def study_with(storage, name, values):
    study = open_study(storage, name, seed=0)
    for value in values:
        trial = study.ask(SPACE)
        for key, content in {"epochs": 1, "diverged": False, "validation_loss": 1.0}.items():
            trial.set_user_attr(key, content)
        study.tell(trial, value)
    return study


def test_the_best_recipe_and_the_table(storage):
    study = study_with(storage, "s", [0.2, 0.9, 0.5])
    assert [row["trial"] for row in trial_table(study)] == [1, 2, 0]
    recipe, point = best_recipe(study, RECIPE), study.trials[1].params
    assert recipe.learning_rate == pytest.approx(point["learning_rate"], rel=1e-3)
    assert recipe.momentum == pytest.approx(1 - point["one_minus_momentum"], rel=1e-3)
    assert (recipe.epochs, recipe.norm) == (RECIPE.epochs, RECIPE.norm)


def test_finalists_start_with_the_best(data, storage):
    earlier = study_with(storage, "s", [0.2, 0.9, 0.5])
    study = open_study(storage, "finalists", seed=0)
    for _ in range(2):
        enqueue_best(study, earlier, 2)
    run_search(study, RECIPE, data, trials=2, side_by_side=2)
    result = sorted(trial_table(study), key=lambda row: row["trial"])
    for row, expected in zip(result, trial_table(earlier)[:2], strict=True):
        assert {name: row[name] for name in SEARCH_RANGES} == {name: expected[name] for name in SEARCH_RANGES}


def test_a_storage_that_cannot_be_opened(tmp_path):
    for storage in (f"sqlite:///{tmp_path}/absent/search.db", "nonsense://x"):
        with pytest.raises(TrainingError, match=r"^The storage .* cannot be opened \(.+\): name a journal file"):
            open_study(storage, "s", seed=0)


def test_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingPackageError, match=r'The search needs optuna: run `pip install "predbn\[tune\]"`'):
        open_study("x", "s", seed=0)
