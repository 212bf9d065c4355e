import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from predbn.common import write_json
from predbn.training import SEARCH_RANGES, TrainingError, draw_points, run_search
from predbn.training.cifar10.search import DECOUPLED_RANGE
from predbn.training.cifar10.trainer import Cifar10Trainer

from ..tiny import TINY, Interrupted, interrupt_after

pytestmark = pytest.mark.usefixtures("small_network")
RESULTS = Path(__file__).parents[3] / "results" / "training"
RECIPE = replace(TINY, epochs=1)
POINTS = draw_points(4, seed=0)


def test_points_depend_on_seed_and_number():
    assert draw_points(2, seed=0) == {number: POINTS[number] for number in (0, 1)}
    assert draw_points(4, seed=1)[0] != POINTS[0]
    assert len({point["learning_rate"] for point in POINTS.values()}) == 4


def test_a_recorded_search_has_the_points_that_are_drawn_today():
    table = pd.read_csv(RESULTS / "search-layer.csv").set_index("trial")
    for number, point in draw_points(10, seed=0, ranges={"learning_rate": (1e-3, 0.03)}).items():
        assert {name: table.loc[number, name] for name in point} == point


def test_points_are_uniform_on_a_logarithmic_scale():
    points = draw_points(100, seed=0).values()
    for name, (low, high) in SEARCH_RANGES.items():
        shares = [math.log(point[name] / low) / math.log(high / low) for point in points]
        assert 0 <= min(shares) < 0.1
        assert 0.9 < max(shares) <= 1
        assert abs(sum(shares) / 100 - 0.5) < 4 * (1 / 12 / 100) ** 0.5


def test_other_ranges_and_the_other_weight_decay():
    for point in draw_points(20, seed=0, decoupled=True, ranges={"learning_rate": (2e-3, 3e-3)}).values():
        assert 2e-3 <= point["learning_rate"] <= 3e-3
        assert DECOUPLED_RANGE[0] <= point["weight_decay"] <= DECOUPLED_RANGE[1]
        assert SEARCH_RANGES["adam_eps"][0] <= point["adam_eps"] <= SEARCH_RANGES["adam_eps"][1]


def test_an_interrupted_search_ends_as_an_uninterrupted_one_with_others_side_by_side(data, tmp_path):
    reports = []
    whole = run_search(
        RECIPE,
        POINTS,
        data,
        tmp_path / "whole",
        side_by_side=3,
        progress=lambda done, total, note: reports.append((done, total)),
    )
    assert reports == [(3, 8), (6, 8), (7, 8), (8, 8)]
    assert sorted(row["trial"] for row in whole) == [0, 1, 2, 3]
    assert all({name: row[name] for name in SEARCH_RANGES} == POINTS[row["trial"]] for row in whole)
    accuracies = [row["validation_accuracy"] for row in whole]
    assert accuracies == sorted(accuracies, reverse=True)
    with pytest.raises(Interrupted):
        run_search(RECIPE, POINTS, data, tmp_path / "cut", side_by_side=2, progress=interrupt_after(3))
    assert sorted(path.name for path in (tmp_path / "cut").glob("*.json")) == ["0.json", "1.json"]
    assert run_search(RECIPE, POINTS, data, tmp_path / "cut", side_by_side=1) == whole
    again = run_search(RECIPE, POINTS, data, tmp_path / "cut", side_by_side=1, progress=interrupt_after(1))
    assert again == whole  # no trial was repeated


def test_a_diverged_trial_has_the_accuracy_of_guessing(data, tmp_path, monkeypatch):
    real = Cifar10Trainer.train_step

    def train_step(self):
        if self.seed == 1:
            self.network.fc.bias.data.fill_(float("nan"))
        real(self)

    monkeypatch.setattr(Cifar10Trainer, "train_step", train_step)
    rows = run_search(RECIPE, draw_points(2, seed=0), data, tmp_path, side_by_side=2)
    by_trial = {row["trial"]: row for row in rows}
    assert by_trial[1] | {"diverged": True, "validation_accuracy": 0.1, "validation_loss": None} == by_trial[1]
    assert by_trial[0]["diverged"] is False


def test_trials_of_another_search_or_of_none(data, tmp_path):
    run_search(RECIPE, {0: POINTS[0]}, data, tmp_path, side_by_side=1)
    with pytest.raises(TrainingError, match=r"0\.json belongs to a run with .*: use the same .* or choose another"):
        run_search(RECIPE, {0: POINTS[1]}, data, tmp_path, side_by_side=1)
    write_json(tmp_path / "0.json", {"card": 1})
    with pytest.raises(TrainingError, match=r"0\.json is not a trial of a search: delete it to repeat the trial"):
        run_search(RECIPE, {0: POINTS[0]}, data, tmp_path, side_by_side=1)
