"""The recipes are the paper's, and wrong numbers are errors."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from importlib.resources import files

import pytest

from predbn.models import NORMALISATIONS, ModelError
from predbn.training import (
    SEARCH_RANGES,
    Cifar10Recipe,
    CriteoRecipe,
    ImageNetRecipe,
    TrainingError,
    find_cifar10_recipe,
    tuned_recipe,
)

TUNED = json.loads((files("predbn.training.cifar10") / "tuned.json").read_text())


def test_the_papers_schedule_for_cifar10():
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
        *(("padding", v) for v in (-1, 32)),
    ],
)
def test_invalid_numbers_for_cifar10(name, value):
    with pytest.raises(TrainingError, match=f"^Expected {name} to be .+, but got {value}"):
        Cifar10Recipe(**{name: value})


def test_an_unknown_border():
    with pytest.raises(TrainingError, match=r"^Expected border to be one of zero, edge, reflect, but got 'grey'"):
        Cifar10Recipe(border="grey")


def test_an_unknown_normalisation():
    with pytest.raises(ModelError, match="no normalisation 'none'"):
        Cifar10Recipe(norm="none")


def test_the_recipe_as_plain_data():
    recipe = Cifar10Recipe(norm="group", momentum=0.95)
    assert Cifar10Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert recipe.to_dict().keys() == {field.name for field in dataclasses.fields(Cifar10Recipe)}


def test_a_cosine_after_a_warm_up():
    recipe = Cifar10Recipe(schedule="cosine", warm_up=2, epochs=8, learning_rate=1.0)
    cosine = [0.5 + 0.5 * math.cos(math.pi * epoch / 8) for epoch in range(9)]
    expected = [0.0, 0.5 * cosine[1], *cosine[2:]]
    assert [recipe.learning_rate_at(epoch) for epoch in range(9)] == pytest.approx(expected)


def test_the_scalars_of_fixup_have_a_tenth_of_the_learning_rate():
    rates = {norm: find_cifar10_recipe("cosine", norm).scalar_rate for norm in NORMALISATIONS}
    assert {norm for norm, rate in rates.items() if rate == 0.1} == {"fixup", "last"}
    assert set(rates.values()) == {0.1, 1.0}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schedule": "linear"}, "^Expected schedule to be one of paper, cosine, but got 'linear'"),
        ({"sgd": True, "decoupled": True}, "^sgd and decoupled cannot be combined"),
        ({"nesterov": True}, "^nesterov needs sgd"),
        ({"nesterov": True, "sgd": True, "momentum": 0}, "^nesterov needs sgd"),
        ({"warm_up": -1}, "^Expected warm_up to be at least 0, but got -1"),
        ({"scalar_rate": 0}, "^Expected scalar_rate to be .* greater than 0, but got 0"),
    ],
)
def test_numbers_that_do_not_go_together(change, says):
    with pytest.raises(TrainingError, match=says):
        Cifar10Recipe(**change)


def test_an_unknown_recipe():
    with pytest.raises(TrainingError, match=r"^Expected recipe to be one of tuned, cosine, but got 'best'"):
        find_cifar10_recipe("best", "batch")


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


def test_the_rate_drops_at_the_same_fractions_as_for_cifar10():
    recipe = CriteoRecipe(learning_rate=1.0)
    rates = [recipe.learning_rate_at(step, 100) for step in (0, 39, 40, 59, 60, 79, 80, 89, 90, 99)]
    assert rates == [1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.0005, 0.0005]
    assert (recipe.epochs, recipe.batch_size, recipe.eps) == (1, 1024, 1e-3)
    assert json.loads(json.dumps(recipe.to_dict())) == recipe.to_dict()


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0},
        {"adam_eps": float("nan")},
        {"momentum": 1},
        {"epochs": 0},
        {"batch_size": 1},
        {"patience": 0},
        {"norm_momentum": 0},
        {"precision": "fp8"},
    ],
)
def test_invalid_numbers_for_criteo(wrong):
    with pytest.raises(TrainingError, match=next(iter(wrong))):
        CriteoRecipe(**wrong)


def test_the_papers_schedule_for_imagenet():
    recipe = ImageNetRecipe(learning_rate=0.4)
    assert (recipe.batch_size, recipe.epochs, recipe.eps) == (512, 90, 1e-5)
    expected = {0: 0, 1: 0.08, 2.5: 0.2, 5: 0.4, 29.99: 0.4, 30: 0.04, 59.9: 0.04, 60: 0.004, 80: 4e-4, 89.9: 4e-4}
    for epoch, rate in expected.items():
        assert recipe.learning_rate_at(epoch) == pytest.approx(rate)


def test_a_shorter_training_has_the_drops_earlier():
    recipe = ImageNetRecipe(learning_rate=1.0, epochs=9, warm_up=0)
    assert [recipe.learning_rate_at(epoch) for epoch in range(9)] == pytest.approx(
        [1] * 3 + [0.1] * 3 + [0.01] * 2 + [0.001]
    )


def test_the_margin_of_the_validation_images_is_the_same_at_every_size():
    assert (ImageNetRecipe().preprocessing.size, ImageNetRecipe().preprocessing.resize) == ((224, 224), 256)
    assert ImageNetRecipe(size=112).preprocessing.resize == 128


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"learning_rate": 0.0}, "Expected learning_rate .* got 0.0"),
        ({"momentum": 0.0}, "Expected momentum to be greater than 0 for Nesterov's method, but got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay to be finite and non-negative, but got -1.0"),
        ({"warm_up": -1}, "warm_up to be at least 0, but got -1"),
        ({"batch_size": 0}, "Expected batch_size to be at least 1, but got 0"),
    ],
)
def test_invalid_numbers_for_imagenet(change, says):
    with pytest.raises(TrainingError, match=says):
        ImageNetRecipe(**change)
