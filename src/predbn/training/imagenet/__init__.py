"""ResNet-50 on ImageNet with the paper's recipe, on one GPU or on several with torchrun.

`train` takes a recipe and a folder with `train` and `val`. The augmentation of each image and the order of an epoch
follow from the seed, so that an interrupted training goes on where it was, in the middle of an epoch.
"""

from .crops import draw_crop, read_crop
from .data import TrainingData, open_data
from .recipe import ImageNetRecipe
from .train import Progress, train

__all__ = ["ImageNetRecipe", "Progress", "TrainingData", "draw_crop", "open_data", "read_crop", "train"]
