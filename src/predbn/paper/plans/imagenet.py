"""The plans of I1 to I4 with ResNet-50, and of I7 with EfficientNet-Lite0. They have no quick version."""

from __future__ import annotations

from dataclasses import replace

from predbn.evaluation import Model, Plan

from .base import add_plans, imagenet_plan

METHODS, BATCH_SIZE, STATISTICS, MIXTURES, MIXTURES_OF_LEVELS, EPS_AT_PREDICTION, LITE0_METHODS = (
    "resnet50-methods",
    "resnet50-batch-sizes",
    "resnet50-statistics",
    "resnet50-mixtures",
    "resnet50-mixtures-levels",
    "resnet50-eps",
    "lite0-methods",
)
RESNET50, LITE0 = "resnet50-v1", "efficientnet-lite0"
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 250, 500)
EPS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 3e-1, 1.0)

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
_MIXTURES_PLAN = replace(
    _STATISTICS_PLAN, strategies=("train", "batch"), shifts=("mixed-5", "mixed-19"), seeds=tuple(range(5))
)


IMAGENET_PLANS = add_plans(
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
        _MIXTURES_PLAN,
    ),
    imagenet_plan(
        MIXTURES_OF_LEVELS,
        "batches that mix 5 or 19 corruptions at all five levels, drawn five times",
        replace(_MIXTURES_PLAN, shifts=("mixed-5-levels", "mixed-19-levels"), severities=(5,)),
    ),
    imagenet_plan(
        EPS_AT_PREDICTION,
        "eps at prediction time from 1e-5 to 1 on clean images",
        replace(
            METHODS_PLAN,
            validation=None,
            methods=("vanilla",),
            strategies=tuple(f"batch[eps={eps}]" for eps in EPS),
            shifts=("clean",),
            diagram_bins=None,
        ),
    ),
    imagenet_plan(
        LITE0_METHODS,
        "vanilla and temperature-scaled EfficientNet-Lite0 with train and prediction-time BN on every split",
        replace(METHODS_PLAN, models=(Model(f"{LITE0}/0"),)),
    ),
)
