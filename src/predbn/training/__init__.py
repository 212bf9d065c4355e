"""Training recipes and the random search: the paper's networks from nothing.

`train_together` trains several runs side by side on one device, `produce` leaves them as the zoo keeps them,
`search` tunes the optimiser's numbers. Optuna (the extra `tune`) is needed for the search alone.
"""

from .cohort import Epoch, Run, train_together
from .errors import TrainingError
from .produce import produce
from .recipe import Recipe
from .trainee import Trainee, TrainingSet
from .tuned import tuned

__all__ = [
    "Epoch",
    "Recipe",
    "Run",
    "Trainee",
    "TrainingError",
    "TrainingSet",
    "produce",
    "train_together",
    "tuned",
]
