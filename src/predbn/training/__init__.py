"""Training the paper's networks from scratch: CIFAR-10, Criteo and ImageNet, and the random search for CIFAR-10.

All three tasks use one loop (`loop.py`): a task subclasses `Trainer` with its data, its step and its evaluation.
`train_cifar10`, `train_criteo` and `train_imagenet` write weights, card and log; an interrupted training resumes bit
for bit. Only the search needs Optuna (the extra `tune`).
"""

from predbn.common import TrainingError

from .cifar10.augmentation import BORDER_STUDY, crop_images, draw_crops, pad_images
from .cifar10.augmentation import PADDING as CROP_PADDING
from .cifar10.search import SEARCH_RANGES, best_recipe, enqueue_best, open_study, run_search, trial_table
from .cifar10.trainer import Cifar10Data, train_cifar10
from .criteo import CriteoData, train_criteo
from .imagenet.data import open_imagenet
from .imagenet.trainer import train_imagenet
from .process_group import ProcessGroup, join_process_group
from .recipes import (
    CIFAR10_RECIPES,
    Cifar10Recipe,
    CriteoRecipe,
    ImageNetRecipe,
    find_cifar10_recipe,
    tuned_recipe,
)

__all__ = [
    "BORDER_STUDY",
    "CIFAR10_RECIPES",
    "CROP_PADDING",
    "SEARCH_RANGES",
    "Cifar10Data",
    "Cifar10Recipe",
    "CriteoData",
    "CriteoRecipe",
    "ImageNetRecipe",
    "ProcessGroup",
    "TrainingError",
    "best_recipe",
    "crop_images",
    "draw_crops",
    "enqueue_best",
    "find_cifar10_recipe",
    "join_process_group",
    "open_imagenet",
    "open_study",
    "pad_images",
    "run_search",
    "train_cifar10",
    "train_criteo",
    "train_imagenet",
    "trial_table",
    "tuned_recipe",
]
