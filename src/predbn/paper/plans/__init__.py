"""What is computed for the paper's figures: plans, each of which serves one or more experiments.

There is one module for each data set. The plans of `auto` are in its experiment, because no other experiment uses them.
"""

from . import cifar10, criteo, imagenet
from .base import CIFAR10, CRITEO, IMAGENET, PLANS, PaperPlan, add_plans, cifar10_plan, imagenet_plan

__all__ = [
    "CIFAR10",
    "CRITEO",
    "IMAGENET",
    "PLANS",
    "PaperPlan",
    "add_plans",
    "cifar10",
    "cifar10_plan",
    "criteo",
    "imagenet",
    "imagenet_plan",
]
