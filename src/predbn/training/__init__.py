"""Training the paper's networks from scratch: CIFAR-10, Criteo and ImageNet, and the random search for CIFAR-10.

All three tasks use one loop (`loop.py`) and one step (`trainer.py`); a task adds its network and its batches.
`train_cifar10`, `train_criteo` and `train_imagenet` write weights, card and log; an interrupted training resumes bit
for bit.
"""

from predbn.common import TrainingError, needs_extra

with needs_extra("eval"):
    import pandas as _pandas  # noqa: F401

from .cifar10.augmentation import PADDING as CROP_PADDING
from .cifar10.augmentation import crop_images, draw_crops, pad_images
from .cifar10.search import SEARCH_RANGES, draw_points, recipe_at, run_search
from .cifar10.trainer import Cifar10Data, train_cifar10
from .criteo import CriteoData, train_criteo
from .imagenet.data import open_imagenet
from .imagenet.trainer import train_imagenet
from .process_group import ProcessGroup, join_process_group
from .recipes import CIFAR10_RECIPES, Cifar10Recipe, CriteoRecipe, ImageNetRecipe, find_cifar10_recipe, tuned_recipe

__all__ = [
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
    "crop_images",
    "draw_crops",
    "draw_points",
    "find_cifar10_recipe",
    "join_process_group",
    "open_imagenet",
    "pad_images",
    "recipe_at",
    "run_search",
    "train_cifar10",
    "train_criteo",
    "train_imagenet",
    "tuned_recipe",
]
