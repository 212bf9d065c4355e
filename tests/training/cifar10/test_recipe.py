from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from importlib.resources import files

import pytest

from predbn.models import NORMALISATIONS, ModelError
from predbn.training import SEARCH_RANGES, Cifar10Recipe, TrainingError, tuned_recipe

TUNED = json.loads((files("predbn.training.cifar10") / "tuned.json").read_text())


def test_the_papers_schedule():
    recipe = Cifar10Recipe(learning_rate=0.5)
    assert (recipe.epochs, recipe.batch_size, recipe.eps) == (100, 512, 1e-3)
    factors = [1.0] * 40 + [0.1] * 20 + [0.01] * 20 + [0.001] * 10 + [0.0005] * 10
    assert [recipe.learning_rate_at(epoch) for epoch in range(100)] == [0.5 * factor for factor in factors]


@pytest.mark.parametrize(
    ("epochs", "lengths"), [(1, [1]), (2, [1]), (10, [4, 2, 2, 1, 1]), (20, [8, 4, 4, 2, 2]), (16, [6, 4, 3, 1, 2])]
)
def test_shorter_runs_have_a_shorter_schedule(epochs, lengths):
    rates = [Cifar10Recipe(learning_rate=1.0, epochs=epochs).learning_rate_at(epoch) for epoch in range(epochs)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 1.0
    if len(lengths) > 1:
        assert [rates.count(factor) for factor in (1.0, 0.1, 0.01, 0.001, 0.0005)] == lengths


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("learning_rate", v) for v in (0, -1, float("nan"), float("inf"))),
        *(("adam_eps", v) for v in (0, float("inf"))),
        *(("momentum", v) for v in (-0.1, 1, float("nan"))),
        *(("weight_decay", v) for v in (-1, float("nan"), float("inf"))),
        *((name, 0) for name in ("epochs", "batch_size", "eps")),
    ],
)
def test_invalid_numbers(name, value):
    with pytest.raises(TrainingError, match=f"^{name} is {value}, but it must be "):
        Cifar10Recipe(**{name: value})


def test_an_unknown_normalisation():
    with pytest.raises(ModelError, match="no normalisation 'none'"):
        Cifar10Recipe(norm="none")


def test_the_recipe_as_plain_data():
    recipe = Cifar10Recipe(norm="group", momentum=0.95)
    assert Cifar10Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert recipe.to_dict().keys() == {field.name for field in dataclasses.fields(Cifar10Recipe)}


@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_the_tuned_recipe_is_the_papers_with_tuned_numbers_recipe(norm):
    recipe = tuned_recipe(norm)
    assert recipe == replace(Cifar10Recipe(norm=norm), **TUNED.get(norm, {}))
    assert (recipe.norm, recipe.epochs, recipe.batch_size, recipe.eps) == (norm, 100, 512, 1e-3)


@pytest.mark.parametrize("norm", TUNED)
def test_tuned_numbers_are_within_the_search_ranges(norm):
    recipe = tuned_recipe(norm)
    for name in ("learning_rate", "adam_eps"):
        assert SEARCH_RANGES[name][0] <= getattr(recipe, name) <= SEARCH_RANGES[name][1]
    assert (
        SEARCH_RANGES["one_minus_momentum"][0] * 0.99
        <= 1 - recipe.momentum
        <= SEARCH_RANGES["one_minus_momentum"][1] * 1.01
    )


def test_tuned_numbers_of_an_unknown_normalisation():
    with pytest.raises(ModelError, match="no normalisation"):
        tuned_recipe("none")
