"""The plans of the CIFAR-10 experiments, C1 to C8 and D1 to D4.

The full plans are the paper's: 10,000 test images under 19 corruptions at five severities, in batches of 500.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from predbn.evaluation import Model, Plan

from ..networks import FIXUP, NORMALISED, ONE_LAYER, WITH_BATCH_NORM, reference_with_eps, seeds_of
from .base import QUICK_IMAGES, PaperPlan, add_plans, cifar10_plan

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 200, 500)
EPS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
LARGE_EPS = 1e-1
"""The second eps in the comparison of normalisations, 100 times the eps of training."""

SEEDS = 3
"""Networks of each kind in the experiments for which the paper shows single models."""

METHODS = "methods"
BATCH_SIZE = "batch-sizes"
STRATEGIES = "strategies"
MIXTURES, MIXTURES_OF_LEVELS = "mixtures", "mixtures-levels"
NORMALISATIONS = "normalisations"
ONE_BN_LAYER = "one-layer"
EPS_AT_PREDICTION = "eps"
ACTIVATIONS = "inside-crops"
"""The plan that measures activations inside the networks (see `run_activations`) instead of predictions."""
CROPS, CROPS_CONTINUED = "crops", "crops-continued"
"""The plans on cropped test images, with a black border and with one that continues the image."""
SINGLE_PRECISION = "single-precision"
"""A part of the plan `methods`, always in single precision: what half precision changes."""


def _models(*references: str) -> tuple[Model, ...]:
    return tuple(Model(reference) for reference in references)


_ALL_SEEDS = _models(f"{WITH_BATCH_NORM}/*")
_QUICK_SEEDS = _models(f"{WITH_BATCH_NORM}/[0-2]")
_THREE_SEEDS = _models(*seeds_of(WITH_BATCH_NORM, SEEDS))
_ONE_SEED = _THREE_SEEDS[:1]
_OTHER_SEEDS = _models(*seeds_of(WITH_BATCH_NORM, 10)[1:])


def _plan(name: str, what: str, quick: Mapping[str, Any] = MappingProxyType({}), **full: Any) -> PaperPlan:
    """A plan with train and prediction-time BN on all networks with batch norm, unless `full` says otherwise.

    The quick plan has three of these networks, or the first of each kind that `full` names.
    """
    plan = Plan(**{"models": _ALL_SEEDS, "strategies": ("train", "batch"), **full}, data="cifar10")
    first = tuple(model for model in plan.models if model.reference.endswith("/0"))
    return cifar10_plan(name, what, plan, models=first or _QUICK_SEEDS, **quick)


def _without_batch_norm() -> tuple[Model, ...]:
    """Every other normalisation with both eps, and Fixup."""
    normalised = [seeds_of(network, SEEDS) for network in NORMALISED]
    both = [(*seeds, *(reference_with_eps(seed, LARGE_EPS) for seed in seeds)) for seeds in normalised]
    return _models(*chain(*both), *seeds_of(FIXUP, SEEDS))


CIFAR10_PLANS = add_plans(
    _plan(
        METHODS,
        "three methods with train and prediction-time BN on every split",
        methods=("vanilla", "temperature", "ensemble"),
    ),
    _plan(CROPS, "the clean test images cropped as in training, with a black border", shifts=("clean",)),
    _plan(CROPS_CONTINUED, "the same crops with a border that continues the image", shifts=("clean",)),
    _plan(
        SINGLE_PRECISION,
        "a part of the plan methods in single precision: one network, clean images and three corruptions",
        models=_ONE_SEED,
        shifts=("clean", "gaussian_noise", "fog", "contrast"),
        severities=(5,),
    ),
    _plan(
        BATCH_SIZE,
        "prediction-time BN with batches from one image to a whole split (one network, because batches of one image "
        "take 10,000 forward passes per split)",
        {"batch_sizes": (1, 8, 64, 100, "all"), "severities": (5,)},
        models=_ONE_SEED,
        strategies=("batch",),
        batch_sizes=(*BATCH_SIZES, "all"),
    ),
    _plan(
        STRATEGIES,
        "frozen statistics, batch statistics only in the last layer, and a larger eps, on every split",
        {"images": QUICK_IMAGES // 2},
        models=_THREE_SEEDS,
        strategies=("frozen", "batch[layers=last]", f"train[eps={LARGE_EPS}]", f"batch[eps={LARGE_EPS}]"),
    ),
    _plan(
        MIXTURES,
        "batches that mix 5 or 19 corruptions, drawn ten times",
        {"seeds": (0, 1, 2)},
        models=_THREE_SEEDS,
        shifts=("mixed-5", "mixed-19"),
        seeds=tuple(range(10)),
    ),
    _plan(
        MIXTURES_OF_LEVELS,
        "batches that mix 5 or 19 corruptions and the levels from 1 to the severity, drawn ten times",
        {"seeds": (0, 1, 2)},
        models=_THREE_SEEDS,
        shifts=("mixed-5-levels", "mixed-19-levels"),
        seeds=tuple(range(10)),
    ),
    _plan(
        EPS_AT_PREDICTION,
        "eps at prediction time from 1e-5 to 10 on the clean test set",
        {"seeds": (0, 1, 2)},
        methods=("vanilla", "ensemble"),
        strategies=tuple(f"batch[eps={eps}]" for eps in EPS),
        shifts=("clean",),
        seeds=tuple(range(5)),
    ),
    _plan(
        NORMALISATIONS,
        "networks with instance, layer and group normalisation, each with two eps, and without normalisation (Fixup)",
        {"images": QUICK_IMAGES // 2},
        models=_without_batch_norm(),
        strategies=("train",),
    ),
    _plan(
        ONE_BN_LAYER,
        "networks with a single batch norm layer, before the final linear layer",
        {"images": QUICK_IMAGES // 2},
        models=_models(*seeds_of(ONE_LAYER, SEEDS)),
    ),
    _plan(
        ACTIVATIONS,
        "activations of all networks with batch norm, and of one of every other kind, on a part of the images",
        {"severities": (5,), "images": QUICK_IMAGES // 2},
        models=_models(*(f"{network}/0" for network in (WITH_BATCH_NORM, *NORMALISED, FIXUP))) + _OTHER_SEEDS,
        images=200,
        severities=(1, 5),
        batch_sizes=(200,),
    ),
)
