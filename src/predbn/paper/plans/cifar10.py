"""The plans of the CIFAR-10 experiments, C1 to C8 and D1 to D4.

The full plans are the paper's: 10,000 test images under 19 corruptions at five severities, in batches of 500.
"""

from __future__ import annotations

from predbn.evaluation import Model, Plan

from ..networks import FIXUP, NORMALISED, ONE_LAYER, WITH_BATCH_NORM, seeds_of, with_eps
from .base import QUICK_IMAGES, cifar10_plan

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 200, 500)
EPS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
LARGE_EPS = 1e-1
"""The second eps in the comparison of normalisations, 100 times the eps of training."""

SEEDS = 3
"""Networks of each kind in the experiments for which the paper shows single models."""

METHODS = "methods"
BATCH_SIZE = "batch-sizes"
STRATEGIES = "strategies"
MIXTURES = "mixtures"
NORMALISATIONS = "normalisations"
ONE_BN_LAYER = "one-layer"
ACTIVATIONS = "inside"
"""The plan that measures activations inside the networks (see `run_activations`) instead of predictions."""
CROPS, CROPS_CONTINUED = "crops", "crops-continued"
"""The plans on cropped test images, with a black border and with one that continues the image (see `crop_like_training`
in `run`)."""


def _models(*references: str) -> tuple[Model, ...]:
    return tuple(Model(reference) for reference in references)


_ALL_SEEDS = _models(f"{WITH_BATCH_NORM}/*")
_QUICK_SEEDS = _models(f"{WITH_BATCH_NORM}/[0-2]")
_THREE_SEEDS = _models(*seeds_of(WITH_BATCH_NORM, SEEDS))
_ONE_SEED = _models(f"{WITH_BATCH_NORM}/0")

_WITHOUT_BATCH_NORM = [
    reference
    for network in NORMALISED
    for reference in (
        *seeds_of(network, SEEDS),
        *(with_eps(default, LARGE_EPS) for default in seeds_of(network, SEEDS)),
    )
] + seeds_of(FIXUP, SEEDS)

_CROPS_PLAN = Plan(models=_ALL_SEEDS, data="cifar10", strategies=("train", "batch"), shifts=("clean",))

CIFAR10_PLANS = (
    cifar10_plan(
        METHODS,
        "three methods with train and prediction-time BN on every split",
        Plan(
            models=_ALL_SEEDS,
            data="cifar10",
            methods=("vanilla", "temperature", "ensemble"),
            strategies=("train", "batch"),
        ),
        models=_QUICK_SEEDS,
    ),
    cifar10_plan(
        CROPS,
        "the clean test images cropped as in training, with a black border",
        _CROPS_PLAN,
        models=_QUICK_SEEDS,
    ),
    cifar10_plan(
        CROPS_CONTINUED,
        "the same crops with a border that continues the image",
        _CROPS_PLAN,
        models=_QUICK_SEEDS,
    ),
    cifar10_plan(
        BATCH_SIZE,
        "prediction-time BN with batches from one image to a whole split (one network, because batches of one image "
        "take 10,000 forward passes per split)",
        Plan(models=_ONE_SEED, data="cifar10", strategies=("batch",), batch_sizes=(*BATCH_SIZES, "all")),
        batch_sizes=(1, 4, 16, 64, 100, "all"),
        severities=(5,),
    ),
    cifar10_plan(
        STRATEGIES,
        "frozen statistics, batch statistics only in the last layer, and a larger eps, on every split",
        Plan(
            models=_THREE_SEEDS,
            data="cifar10",
            strategies=("frozen", "batch[layers=last]", f"train[eps={LARGE_EPS}]", f"batch[eps={LARGE_EPS}]"),
        ),
        models=_ONE_SEED,
        images=QUICK_IMAGES // 2,
    ),
    cifar10_plan(
        MIXTURES,
        "batches that mix 5 or 19 corruptions, drawn ten times",
        Plan(
            models=_THREE_SEEDS,
            data="cifar10",
            strategies=("train", "batch"),
            shifts=("mixed-5", "mixed-19"),
            seeds=tuple(range(10)),
        ),
        models=_ONE_SEED,
        seeds=(0, 1, 2),
    ),
    cifar10_plan(
        "eps",
        "eps at prediction time from 1e-5 to 10 on the clean test set",
        Plan(
            models=_ALL_SEEDS,
            data="cifar10",
            methods=("vanilla", "ensemble"),
            strategies=tuple(f"batch[eps={eps}]" for eps in EPS),
            shifts=("clean",),
            seeds=tuple(range(5)),
        ),
        models=_QUICK_SEEDS,
        seeds=(0, 1, 2),
    ),
    cifar10_plan(
        NORMALISATIONS,
        "networks with instance, layer and group normalisation, each with two eps, and without normalisation (Fixup)",
        Plan(models=_models(*_WITHOUT_BATCH_NORM), data="cifar10", strategies=("train",)),
        models=_models(*(reference for reference in _WITHOUT_BATCH_NORM if reference.endswith("/0"))),
        images=QUICK_IMAGES // 2,
    ),
    cifar10_plan(
        ONE_BN_LAYER,
        "networks with a single batch norm layer, before the final linear layer",
        Plan(models=_models(*seeds_of(ONE_LAYER, SEEDS)), data="cifar10", strategies=("train", "batch")),
        models=_models(f"{ONE_LAYER}/0"),
        images=QUICK_IMAGES // 2,
    ),
    cifar10_plan(
        ACTIVATIONS,
        "activations, embeddings and logits of one network of every kind on every split",
        Plan(
            models=_models(*(f"{network}/0" for network in (WITH_BATCH_NORM, *NORMALISED, FIXUP, ONE_LAYER))),
            data="cifar10",
            strategies=("train", "batch"),
        ),
        severities=(5,),
        images=QUICK_IMAGES // 2,
    ),
)
