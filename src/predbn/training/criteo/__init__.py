"""Training of the Criteo network."""

from .produce import CriteoSets, produce_criteo
from .recipe import CriteoRecipe
from .trainee import CriteoTrainee

__all__ = ["CriteoRecipe", "CriteoSets", "CriteoTrainee", "produce_criteo"]
