"""What is computed for the paper's figures: plans, each of which serves one or more experiments.

There is one module for each data set.
"""

from . import cifar10, criteo, imagenet
from .base import CIFAR10, CRITEO, IMAGENET, PLANS, PaperPlan

__all__ = [
    "CIFAR10",
    "CRITEO",
    "IMAGENET",
    "PLANS",
    "PaperPlan",
    "cifar10",
    "criteo",
    "imagenet",
]
