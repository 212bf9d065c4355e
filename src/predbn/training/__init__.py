"""Training recipes and the random search: the paper's networks from nothing.

`train_together` trains several runs side by side on one device, `produce` leaves them as the zoo keeps them,
`search` tunes the optimiser's numbers. Optuna (the extra `tune`) is needed for the search alone.
"""

from predbn.common import TrainingError

from .augmentation import PADDING as CROP_PADDING
from .augmentation import crop as crop_images
from .augmentation import draw as draw_crops
from .augmentation import pad as pad_images
from .cohort import Epoch, Run, train_together
from .criteo import CriteoRecipe, CriteoSets, produce_criteo
from .imagenet.data import open_data
from .imagenet.processes import Processes, joined
from .imagenet.recipe import ImageNetRecipe
from .imagenet.train import Progress, place_of, train
from .produce import Sets, produce, unfinished
from .recipe import Recipe
from .search import RANGES, best, enqueue_best, open_study, search, table
from .trainee import Trainee, TrainingSet
from .tuned import tuned

__all__ = [
    "CROP_PADDING",
    "RANGES",
    "CriteoRecipe",
    "CriteoSets",
    "Epoch",
    "ImageNetRecipe",
    "Processes",
    "Progress",
    "Recipe",
    "Run",
    "Sets",
    "Trainee",
    "TrainingError",
    "TrainingSet",
    "best",
    "crop_images",
    "draw_crops",
    "enqueue_best",
    "joined",
    "open_data",
    "open_study",
    "pad_images",
    "place_of",
    "produce",
    "produce_criteo",
    "search",
    "table",
    "train",
    "train_together",
    "tuned",
    "unfinished",
]
