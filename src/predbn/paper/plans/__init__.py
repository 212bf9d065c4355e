"""What is computed for the paper's figures and for `auto`: plans, each of which serves one or more experiments.

There is one module for each data set, and one for `auto`.
"""

from .auto import CIFAR10_AUTO_PLANS, IMAGENET_AUTO_PLANS
from .base import CIFAR10, CRITEO, IMAGENET, PaperPlan
from .cifar10 import CIFAR10_PLANS
from .criteo import CRITEO_PLANS
from .imagenet import IMAGENET_PLANS

__all__ = ["CIFAR10", "CRITEO", "IMAGENET", "PLANS", "PaperPlan"]

PLANS = {
    plan.name: plan
    for plan in (*CIFAR10_PLANS, *CRITEO_PLANS, *IMAGENET_PLANS, *CIFAR10_AUTO_PLANS, *IMAGENET_AUTO_PLANS)
}
