"""The numbers that the recorded searches found, one set for each normalisation."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

from .recipe import Recipe

__all__ = ["tuned"]


def tuned(norm: str) -> Recipe:
    """The recipe for that normalisation as `predbn tune` left it (`results/training` has the trials)."""
    recipe = Recipe(norm=norm)
    found = json.loads((files("predbn.training") / "tuned.json").read_text())
    return replace(recipe, **found.get(norm, {}))
