"""The recipe is the paper's, and wrong numbers are errors."""

from __future__ import annotations

import json

import pytest

from predbn.training import CriteoRecipe, TrainingError


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
def test_wrong_numbers(wrong):
    with pytest.raises(TrainingError, match=next(iter(wrong))):
        CriteoRecipe(**wrong)
