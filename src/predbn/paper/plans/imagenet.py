"""The plans of I1 to I4 with ResNet-50, and of I7 with EfficientNet-Lite0. They have no quick version."""

from __future__ import annotations

from dataclasses import replace

from predbn.evaluation import Model, Plan

from .base import IMAGENET, PaperPlan

METHODS, BATCH_SIZE, STATISTICS, MIXTURES, LITE0_METHODS = (
    "resnet50-methods",
    "resnet50-batch-sizes",
    "resnet50-statistics",
    "resnet50-mixtures",
    "lite0-methods",
)
RESNET50, LITE0, LITE1, LITE2 = "resnet50-v1", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 250, 500)

METHODS_PLAN = Plan(
    models=(Model(f"{RESNET50}/0"),),
    data="imagenet:val",
    validation="imagenet:val",
    methods=("vanilla", "temperature"),
    strategies=("train", "batch"),
    batch_sizes=(100,),
    diagram_bins=100,
    hits=True,
)
_BATCH_SIZE_PLAN = replace(
    METHODS_PLAN,
    validation=None,
    methods=("vanilla",),
    strategies=("batch",),
    severities=(5,),
    batch_sizes=BATCH_SIZES,
    diagram_bins=None,
    hits=False,
)
_STATISTICS_PLAN = replace(
    _BATCH_SIZE_PLAN, strategies=("batch", "frozen"), severities=(1, 2, 3, 4, 5), batch_sizes=(500,)
)


def imagenet_plan(name: str, what: str, plan: Plan) -> PaperPlan:
    """A plan on ImageNet, the same in both sizes, because no images come with the package for a quick one."""
    return PaperPlan(name, what, plan, plan, IMAGENET)


IMAGENET_PLANS = (
    imagenet_plan(
        METHODS,
        "vanilla and temperature-scaled ResNet-50 with train and prediction-time BN on every split",
        METHODS_PLAN,
    ),
    imagenet_plan(
        BATCH_SIZE,
        "prediction-time BN with batches from one image to 500, on clean images and at severity 5",
        _BATCH_SIZE_PLAN,
    ),
    imagenet_plan(
        STATISTICS,
        "statistics of each batch, and of the first batch of a split, on every split",
        _STATISTICS_PLAN,
    ),
    imagenet_plan(
        MIXTURES,
        "batches that mix 5 or 19 corruptions, drawn five times",
        replace(_STATISTICS_PLAN, strategies=("train", "batch"), shifts=("mixed-5", "mixed-19"), seeds=tuple(range(5))),
    ),
    imagenet_plan(
        LITE0_METHODS,
        "vanilla and temperature-scaled EfficientNet-Lite0 with train and prediction-time BN on every split",
        replace(METHODS_PLAN, models=(Model(f"{LITE0}/0"),)),
    ),
)
