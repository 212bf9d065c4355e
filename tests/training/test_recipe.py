from __future__ import annotations

import dataclasses
import json

import pytest

from predbn.models import ModelError
from predbn.training import Recipe, TrainingError


def test_the_papers_schedule():
    recipe = Recipe(learning_rate=0.5)
    assert (recipe.epochs, recipe.batch_size, recipe.eps) == (100, 512, 1e-3)
    factors = [1.0] * 40 + [0.1] * 20 + [0.01] * 20 + [0.001] * 10 + [0.0005] * 10
    assert [recipe.rate(epoch) for epoch in range(100)] == [0.5 * factor for factor in factors]


@pytest.mark.parametrize(
    ("epochs", "lengths"), [(1, [1]), (2, [1]), (10, [4, 2, 2, 1, 1]), (20, [8, 4, 4, 2, 2]), (16, [6, 4, 3, 1, 2])]
)
def test_shorter_runs_have_a_shorter_schedule(epochs, lengths):
    rates = [Recipe(learning_rate=1.0, epochs=epochs).rate(epoch) for epoch in range(epochs)]
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
def test_numbers_that_cannot_be_are_told(name, value):
    with pytest.raises(TrainingError, match=f"^{name} is {value}, but it must be "):
        Recipe(**{name: value})


def test_an_unknown_normalisation_is_told():
    with pytest.raises(ModelError, match="no normalisation 'none'"):
        Recipe(norm="none")


def test_it_is_plain_data():
    recipe = Recipe(norm="group", momentum=0.95)
    assert Recipe(**json.loads(json.dumps(recipe.describe()))) == recipe
    assert recipe.describe().keys() == {field.name for field in dataclasses.fields(Recipe)}
