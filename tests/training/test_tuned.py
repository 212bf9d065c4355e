from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import pytest

from predbn.models import ModelError
from predbn.models.normalisation import NORMALISATIONS
from predbn.training import Recipe, tuned
from predbn.training.search import RANGES

FOUND = json.loads((files("predbn.training") / "tuned.json").read_text())


@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_the_recipe_is_the_papers_but_for_what_was_tuned(norm):
    recipe = tuned(norm)
    assert recipe == replace(Recipe(norm=norm), **FOUND.get(norm, {}))
    assert (recipe.norm, recipe.epochs, recipe.batch_size, recipe.eps) == (norm, 100, 512, 1e-3)


@pytest.mark.parametrize("norm", FOUND)
def test_what_was_tuned_lies_where_it_was_looked_for(norm):
    recipe = tuned(norm)
    for name in ("learning_rate", "adam_eps"):
        assert RANGES[name][0] <= getattr(recipe, name) <= RANGES[name][1]
    assert RANGES["one_minus_momentum"][0] * 0.99 <= 1 - recipe.momentum <= RANGES["one_minus_momentum"][1] * 1.01


def test_an_unknown_normalisation_is_told():
    with pytest.raises(ModelError, match="no normalisation"):
        tuned("none")
