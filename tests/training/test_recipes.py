"""The recipes are the paper's, and wrong numbers are errors."""

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


def rates(recipe, epochs):
    return [recipe.learning_rate_at(epoch) for epoch in epochs]


def test_the_papers_schedule_for_cifar10():
    recipe = Cifar10Recipe(learning_rate=0.5)
    assert (recipe.epochs, recipe.batch_size, recipe.eps) == (100, 512, 1e-3)
    factors = [1.0] * 40 + [0.1] * 20 + [0.01] * 20 + [0.001] * 10 + [0.0005] * 10
    assert rates(recipe, range(100)) == [0.5 * factor for factor in factors]


@pytest.mark.parametrize(
    ("epochs", "lengths"), [(1, [1]), (2, [1]), (10, [4, 2, 2, 1, 1]), (20, [8, 4, 4, 2, 2]), (16, [6, 4, 3, 1, 2])]
)
def test_shorter_runs_have_a_shorter_schedule(epochs, lengths):
    drops = rates(Cifar10Recipe(learning_rate=1.0, epochs=epochs), range(epochs))
    assert drops == sorted(drops, reverse=True)
    assert drops[0] == 1.0
    if len(lengths) > 1:
        assert [drops.count(factor) for factor in (1.0, 0.1, 0.01, 0.001, 0.0005)] == lengths


def test_a_cosine_after_a_warm_up():
    recipe = Cifar10Recipe(schedule="cosine", warm_up=2, epochs=8, learning_rate=1.0)
    cosine = [0.5 + 0.5 * math.cos(math.pi * epoch / 8) for epoch in range(9)]
    assert rates(recipe, range(9)) == pytest.approx([0.0, 0.5 * cosine[1], *cosine[2:]])


@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_the_tuned_recipe_is_the_papers_with_tuned_numbers(norm):
    recipe = tuned_recipe(norm)
    assert recipe == replace(Cifar10Recipe(norm=norm), **TUNED.get(norm, {}))
    assert Cifar10Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe
    if norm in TUNED:
        point = {**recipe.to_dict(), "one_minus_momentum": 1 - recipe.momentum}
        for name in ("learning_rate", "adam_eps", "one_minus_momentum"):
            assert SEARCH_RANGES[name][0] * 0.99 <= point[name] <= SEARCH_RANGES[name][1] * 1.01


def test_the_rate_of_criteo_drops_at_the_same_fractions_as_for_cifar10():
    recipe = CriteoRecipe(learning_rate=1.0)
    drops = [recipe.learning_rate_at(step, 100) for step in (0, 39, 40, 59, 60, 79, 80, 89, 90, 99)]
    assert drops == [1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.0005, 0.0005]
    assert (recipe.epochs, recipe.batch_size, recipe.eps) == (1, 1024, 1e-3)
    assert json.loads(json.dumps(recipe.to_dict())) == recipe.to_dict()


def test_the_papers_schedule_for_imagenet():
    recipe = ImageNetRecipe(learning_rate=0.4)
    assert (recipe.batch_size, recipe.epochs, recipe.eps) == (512, 90, 1e-5)
    expected = {0: 0, 1: 0.08, 2.5: 0.2, 5: 0.4, 29.99: 0.4, 30: 0.04, 59.9: 0.04, 60: 0.004, 80: 4e-4, 89.9: 4e-4}
    assert rates(recipe, expected) == pytest.approx(list(expected.values()))
    short = ImageNetRecipe(learning_rate=1.0, epochs=9, warm_up=0)
    assert rates(short, range(9)) == pytest.approx([1] * 3 + [0.1] * 3 + [0.01] * 2 + [0.001])


def test_the_margin_of_the_validation_images_is_the_same_at_every_size():
    assert (ImageNetRecipe().preprocessing.size, ImageNetRecipe().preprocessing.resize) == ((224, 224), 256)
    assert ImageNetRecipe(size=112).preprocessing.resize == 128


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("recipe", "name", "value"),
    [
        *((Cifar10Recipe, "learning_rate", value) for value in (0, -1, NAN, INFINITE)),
        *((Cifar10Recipe, "momentum", value) for value in (-0.1, 1, NAN)),
        *((Cifar10Recipe, "weight_decay", value) for value in (-1, NAN, INFINITE)),
        *((Cifar10Recipe, "padding", value) for value in (-1, 32)),
        *((Cifar10Recipe, name, 0) for name in ("epochs", "batch_size", "eps", "adam_eps", "scalar_rate")),
        (Cifar10Recipe, "warm_up", -1),
        (Cifar10Recipe, "border", "grey"),
        (Cifar10Recipe, "schedule", "linear"),
        *((CriteoRecipe, name, 0) for name in ("learning_rate", "epochs", "patience", "norm_momentum")),
        (CriteoRecipe, "adam_eps", NAN),
        (CriteoRecipe, "batch_size", 1),
        (CriteoRecipe, "precision", "fp8"),
        *((ImageNetRecipe, name, 0) for name in ("learning_rate", "momentum", "batch_size", "size")),
        *((ImageNetRecipe, name, -1) for name in ("weight_decay", "warm_up")),
    ],
)
def test_invalid_numbers(recipe, name, value):
    with pytest.raises(TrainingError, match=rf"^Expected {name} to be .+, but got {value!r}\.$"):
        recipe(**{name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sgd": True, "decoupled": True}, "^sgd and decoupled cannot be combined"),
        ({"sgd": True, "momentum": 0}, "^sgd with Nesterov's momentum needs a momentum"),
    ],
)
def test_options_that_cannot_be_combined(change, message):
    with pytest.raises(TrainingError, match=message):
        Cifar10Recipe(**change)


def test_unknown_names():
    with pytest.raises(TrainingError, match=r"^Expected recipe to be one of tuned, cosine, but got 'best'"):
        find_cifar10_recipe("best", "batch")
    for make in (tuned_recipe, lambda norm: Cifar10Recipe(norm=norm)):
        with pytest.raises(ModelError, match="unknown normalisation 'none'"):
            make("none")
