from __future__ import annotations

import math
import os
import socket
import sys
from dataclasses import replace

import pytest

from predbn.training import Trainee, TrainingError
from predbn.training.search import DECOUPLED, RANGES, best, enqueue_best, open_study, search, table

from .tiny import TINY

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")
pytestmark = pytest.mark.usefixtures("small_network")
RECIPE = replace(TINY, epochs=1)
SPACE = {name: optuna.distributions.FloatDistribution(*ends, log=True) for name, ends in RANGES.items()}


@pytest.fixture
def storage(tmp_path):
    return str(tmp_path / "new" / "search.journal")


def params(study):
    """The points of the complete trials, whatever their numbers."""
    return sorted(tuple(trial.params.values()) for trial in study.trials if trial.value is not None)


def test_draws_follow_from_seed_number_and_name(tmp_path):
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
    for name, (low, high) in RANGES.items():
        places = [math.log(point[name] / low) / math.log(high / low) for point in drawn]
        assert 0 <= min(places) < 0.1
        assert 0.9 < max(places) <= 1
        assert abs(sum(places) / 100 - 0.5) < 4 * (1 / 12 / 100) ** 0.5


@pytest.mark.parametrize("database", [False, True])
def test_a_search_has_as_many_trials_as_asked_for(data, tmp_path, database):
    storage = f"sqlite:///{tmp_path}/search.db" if database else str(tmp_path / "search.journal")
    study, sizes, told = open_study(storage, "s", seed=0), [], []
    search(
        study,
        RECIPE,
        data,
        trials=3,
        at_once=2,
        on_epoch=lambda e: sizes.append(len(e)),
        on_trial=lambda t: told.append(t.number),
    )
    assert (sizes, told) == ([2, 1], [0, 1, 2])
    again = open_study(storage, "s", seed=0)
    assert table(again) == table(study)
    search(again, RECIPE, data, trials=3, at_once=2, on_epoch=lambda e: pytest.fail("it was complete"))


def test_how_many_at_once_changes_no_trial(data, tmp_path):
    tables = []
    for at_once in (1, 3):
        study = open_study(str(tmp_path / str(at_once)), "s", seed=0)
        search(study, RECIPE, data, trials=3, at_once=at_once)
        tables.append(table(study))
    assert tables[0] == tables[1]


def test_an_interrupted_search_ends_as_an_uninterrupted_one(data, storage, tmp_path, monkeypatch):
    whole = open_study(str(tmp_path / "whole"), "s", seed=0)
    search(whole, RECIPE, data, trials=4, at_once=2)

    def stop(epochs):
        if epochs[0].run.seed == 2:
            raise KeyboardInterrupt

    study = open_study(storage, "s", seed=0)
    with pytest.raises(KeyboardInterrupt):
        search(study, RECIPE, data, trials=4, at_once=2, on_epoch=stop)
    assert len(table(study)) == 2
    alive = open_study(storage, "s", seed=0)
    assert [trial.state.name for trial in alive.trials] == ["COMPLETE"] * 2 + ["RUNNING"] * 2
    monkeypatch.setattr("predbn.training.search._alive", lambda process: process != os.getpid())
    study = open_study(storage, "s", seed=0)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2 + ["FAIL"] * 2 + ["WAITING"] * 2
    search(study, RECIPE, data, trials=4, at_once=2)
    assert params(study) == params(whole)
    values = [[row["validation_accuracy"] for row in table(s)] for s in (study, whole)]
    losses = [sorted(row["validation_loss"] for row in table(s)) for s in (study, whole)]
    assert values[0] == values[1]
    assert losses[0] == losses[1]


def test_trials_of_other_machines_are_left_alone(storage):
    study = open_study(storage, "s", seed=0)
    study.ask(SPACE).set_user_attr("worker", "elsewhere:1")
    study.ask(SPACE).set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
    study.ask(SPACE)
    assert {trial.state.name for trial in open_study(storage, "s", seed=0).trials} == {"RUNNING"}


def test_a_diverged_trial_says_where_not_to_look(data, storage, monkeypatch):
    real = Trainee.step

    def step(self):
        if self.seed == 1:
            self.network.fc.bias.data.fill_(float("nan"))
        real(self)

    monkeypatch.setattr(Trainee, "step", step)
    study = open_study(storage, "s", seed=0)
    search(study, RECIPE, data, trials=2, at_once=2)
    rows = {row["trial"]: row for row in table(study)}
    assert rows[1] | {"diverged": True, "validation_accuracy": 0.1, "validation_loss": None} == rows[1]
    assert rows[0]["diverged"] is False


def test_other_ranges_and_the_other_weight_decay(data, storage):
    study = open_study(storage, "s", seed=0)
    search(study, replace(RECIPE, decoupled=True), data, trials=2, at_once=2, ranges={"learning_rate": (2e-3, 3e-3)})
    for row in table(study):
        assert 2e-3 <= row["learning_rate"] <= 3e-3
        assert DECOUPLED[0] <= row["weight_decay"] <= DECOUPLED[1]
        assert RANGES["adam_eps"][0] <= row["adam_eps"] <= RANGES["adam_eps"][1]


def told(storage, name, values):
    study = open_study(storage, name, seed=0)
    for value in values:
        trial = study.ask(SPACE)
        for key, content in {"epochs": 1, "diverged": False, "validation_loss": 1.0}.items():
            trial.set_user_attr(key, content)
        study.tell(trial, value)
    return study


def test_the_best_recipe_and_the_table(storage):
    study = told(storage, "s", [0.2, 0.9, 0.5])
    assert [row["trial"] for row in table(study)] == [1, 2, 0]
    recipe, point = best(study, RECIPE), study.trials[1].params
    assert recipe.learning_rate == pytest.approx(point["learning_rate"], rel=1e-3)
    assert recipe.momentum == pytest.approx(1 - point["one_minus_momentum"], rel=1e-3)
    assert (recipe.epochs, recipe.norm) == (RECIPE.epochs, RECIPE.norm)


def test_finalists_begin_with_the_best(data, storage):
    earlier = told(storage, "s", [0.2, 0.9, 0.5])
    study = open_study(storage, "finalists", seed=0)
    for _ in range(2):
        enqueue_best(study, earlier, 2)
    search(study, RECIPE, data, trials=2, at_once=2)
    found = sorted(table(study), key=lambda row: row["trial"])
    for row, wanted in zip(found, table(earlier)[:2], strict=True):
        assert {name: row[name] for name in RANGES} == {name: wanted[name] for name in RANGES}


def test_a_storage_that_cannot_be_opened_is_told(tmp_path):
    for storage in (f"sqlite:///{tmp_path}/absent/search.db", "nonsense://x"):
        with pytest.raises(TrainingError, match=r"^The storage .* cannot be opened \(.+\): name a journal file"):
            open_study(storage, "s", seed=0)


def test_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(TrainingError, match=r"needs Optuna: run `pip install predbn\[tune\]`"):
        open_study("x", "s", seed=0)
