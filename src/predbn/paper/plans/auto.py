"""The plans for `auto`, on CIFAR-10 with ten ResNet-20 and on ImageNet with two networks.

Most plans have `auto` in one pass (`ONE_PASS`): four passes would take four times as long. `auto` by default (`AUTO`)
is in the streams and mixtures, and on ImageNet in batches of several sizes.

The full grid, every network × split × batch size × strategy on all images, would cost many times as much and tell no
more. So there are several plans: many images where a loss of half a point has to be seen, fewer where means over 95
splits are compared.

| plan | networks | images per split | purpose |
|---|---|---|---|
| `auto-methods` | ten | all | one pass in batches of 500, with temperature and ensembles too; compared with `methods` |
| `auto-sizes` | ten | 5,000 | one pass, `train` and `batch` in smaller batches |
| `auto-compared` | three | 1,000 | all variants of `auto`, and `prior` with several N, in batches of any size |
| `auto-streams` | three | 2,000 | streams with few classes at a time; `ema` is one of the strategies |
| `auto-mixtures` | three | all | 19 corruptions in one batch |
| `auto-attacks-targeted` | two | 600 | a fifth of each batch attacks one image of it, as published; six corruptions |
| `auto-attacks-everyone` | two | 1,000 | a tenth of each batch attacks all others; clean images |

On ImageNet each network has five such plans, and `auto` is calibrated on the images that a plan does not evaluate.
EfficientNet-Lite1 and Lite2 were held out: their plans were run once, when everything else was done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from predbn.evaluation import Model, Plan

from ..networks import WITH_BATCH_NORM, seeds_of
from .base import PaperPlan, cifar10_plan
from .imagenet import LITE0, LITE1, LITE2, METHODS_PLAN, RESNET50, imagenet_plan

AUTO = "auto"
ONE_PASS, SKEWED, UNCALIBRATED = "auto(skewed=False)", "auto(skewed=True)", "auto(skewed=False, calibrated=False)"
"""`auto` in one pass and without bounded influence, as it was when most plans were run."""
PRIORS = ("prior(N=4)", "prior(N=16)", "prior(N=64)")
IMAGENET_PRIORS = PRIORS[1:]
"""Without N = 4, which is far behind in batches as small as those of the ImageNet plans."""

LARGEST = 500
SMALLER = (1, 2, 5, 20, 100)
STREAM_BATCH = 100
"""Images per batch of the streams and mixtures."""
ORDERS = ("by_class", "dirichlet:0.1")
"""Streams with few classes at a time: one class after another, and classes in bursts."""
TARGETED, EVERYONE = "auto-attacks-targeted", "auto-attacks-everyone"
"""The names of the plans with attacks, which are always in single precision."""
ATTACKED = ("train", "batch", "prior(N=16)", "auto(passes=1)", AUTO, "auto_stream")
"""The strategies that are attacked; one pass here is that of today, with bounded influence."""
_IMAGENET_STREAM_SHIFTS = ("clean", "gaussian_noise", "motion_blur", "fog", "contrast", "jpeg_compression")


@dataclass(frozen=True)
class NetworkPlans:
    """The names of the plans of one kind of network.

    label     how documents call the network
    baseline  the plan with `train` and `batch` in batches of 500
    default   the plan with `auto` by default in batches that hold all classes; on ImageNet of several sizes
    """

    label: str
    network: str
    baseline: str
    methods: str
    sizes: str
    compared: str
    default: str
    streams: str
    mixtures: str


RESNET20_PLANS = NetworkPlans(
    "ResNet-20",
    WITH_BATCH_NORM,
    baseline="methods",
    methods="auto-methods",
    sizes="auto-sizes",
    compared="auto-compared",
    default="auto-streams",
    streams="auto-streams",
    mixtures="auto-mixtures",
)


def _imagenet_network(label: str, network: str, short: str) -> NetworkPlans:
    kinds = ("methods", "sizes", "default", "streams", "mixtures")
    methods, sizes, default, streams, mixtures = (f"auto-{short}-{kind}" for kind in kinds)
    return NetworkPlans(label, network, methods, methods, sizes, sizes, default, streams, mixtures)


IMAGENET_NETWORKS = (
    _imagenet_network("ResNet-50", RESNET50, "resnet50"),
    _imagenet_network("EfficientNet-Lite0", LITE0, "lite0"),
)
RESNET50_PLANS, LITE0_PLANS = IMAGENET_NETWORKS
NETWORKS = (RESNET20_PLANS, *IMAGENET_NETWORKS)


def _cifar10_plans(plans: NetworkPlans) -> tuple[PaperPlan, ...]:
    three_seeds = tuple(Model(reference) for reference in seeds_of(WITH_BATCH_NORM, 3))
    quick_seeds = (Model(f"{WITH_BATCH_NORM}/[0-2]"),)
    methods = Plan(
        models=(Model(f"{WITH_BATCH_NORM}/*"),),
        data="cifar10",
        methods=("vanilla", "temperature", "ensemble"),
        strategies=(ONE_PASS,),
        batch_sizes=(LARGEST,),
    )

    def plan(name: str, what: str, quick: Mapping[str, Any] = MappingProxyType({}), **changes: Any) -> PaperPlan:
        """A plan with three networks by default, and a quick version with one network and few images."""
        full = replace(methods, **{"models": three_seeds, "methods": ("vanilla",), **changes})
        smaller = {"models": three_seeds[:1], "batch_sizes": (20,), "severities": (5,), "images": 40}
        return cifar10_plan(name, what, full, **{**smaller, **quick})

    return (
        cifar10_plan(plans.methods, "three methods with auto on every split", methods, models=quick_seeds),
        plan(
            plans.sizes,
            "auto, train and prediction-time BN with batches from one image to 100",
            {"models": quick_seeds},
            models=methods.models,
            strategies=("train", "batch", ONE_PASS),
            batch_sizes=SMALLER,
            images=5000,
        ),
        plan(
            plans.compared,
            "every variant of auto, and prior with several N, with batches from one image to 500 (three networks)",
            strategies=("train", "batch", ONE_PASS, SKEWED, UNCALIBRATED, *PRIORS),
            batch_sizes=(1, 5, 20, 100, LARGEST),
            images=1000,
        ),
        plan(
            plans.streams,
            "batches of 100 with sorted classes, with classes in bursts, and shuffled",
            strategies=("train", "batch", ONE_PASS, SKEWED, "prior(N=16)", "ema", AUTO),
            severities=(1, 3, 5),
            batch_sizes=(STREAM_BATCH,),
            orders=("shuffled", *ORDERS),
            images=2000,
        ),
        plan(
            plans.mixtures,
            "batches of 100 that mix 19 corruptions, drawn five times",
            {"batch_sizes": (100,), "severities": (1, 5), "seeds": (0, 1, 2)},
            strategies=("train", "batch", ONE_PASS, SKEWED, AUTO),
            shifts=("mixed-19",),
            batch_sizes=(STREAM_BATCH,),
            seeds=tuple(range(5)),
        ),
        plan(
            TARGETED,
            "batches of 200 at severity 5, of which 40 images make one other be predicted as a wrong class",
            {"shifts": ("fog",), "images": 20},
            models=three_seeds[:2],
            strategies=ATTACKED,
            shifts=("gaussian_noise", "glass_blur", "fog", "contrast", "pixelate", "jpeg_compression"),
            severities=(5,),
            batch_sizes=(200,),
            orders=("shuffled", "attacked:targeted"),
            images=600,
        ),
        plan(
            EVERYONE,
            "clean batches of 100, of which 10 images raise the loss of all others",
            {"images": 20},
            models=three_seeds[:2],
            strategies=ATTACKED,
            shifts=("clean",),
            batch_sizes=(100,),
            orders=("shuffled", "attacked:everyone"),
            images=1000,
        ),
    )


def _imagenet_plans(plans: NetworkPlans) -> tuple[PaperPlan, ...]:
    baselines = ("train", "batch", ONE_PASS)

    def plan(name: str, what: str, *strategies: str, **changes: Any) -> PaperPlan:
        """A plan on 2,000 images by default."""
        options: dict[str, Any] = {"methods": ("vanilla",), "images": 2000, "diagram_bins": None, **changes}
        options |= {"models": (Model(f"{plans.network}/0"),), "strategies": strategies}
        return imagenet_plan(name, what.format(plans.label), replace(METHODS_PLAN, **options))

    return (
        plan(
            plans.methods,
            "vanilla and temperature-scaled {} with auto on every split",
            *baselines,
            methods=("vanilla", "temperature"),
            batch_sizes=(LARGEST,),
        ),
        plan(
            plans.sizes,
            "{} with auto and the strategies it is compared with, in batches from one image to 100",
            *baselines,
            UNCALIBRATED,
            *IMAGENET_PRIORS,
            batch_sizes=SMALLER,
            images=500,
        ),
        plan(
            plans.default,
            "{} with auto in four passes, in batches of 5, 20 and 100 under the standard corruptions at severity 3",
            AUTO,
            shifts=("standard",),
            severities=(3,),
            batch_sizes=(5, 20, 100),
            images=500,
            hits=False,
        ),
        plan(
            f"{plans.default}-500",
            "{} with auto in one and in four passes in one batch of 500 for each standard corruption at severity 3",
            ONE_PASS,
            AUTO,
            shifts=("standard",),
            severities=(3,),
            batch_sizes=(LARGEST,),
            images=500,
            hits=False,
        ),
        plan(
            plans.streams,
            "{} in batches of 100 with sorted classes and with classes in bursts",
            *baselines,
            SKEWED,
            "ema",
            AUTO,
            shifts=_IMAGENET_STREAM_SHIFTS,
            severities=(3,),
            batch_sizes=(STREAM_BATCH,),
            orders=ORDERS,
            images=4000,
            hits=False,
        ),
        plan(
            plans.mixtures,
            "{} in batches of 100 that mix 19 corruptions, drawn three times",
            *baselines,
            SKEWED,
            AUTO,
            shifts=("mixed-19",),
            batch_sizes=(STREAM_BATCH,),
            seeds=(0, 1, 2),
            hits=False,
        ),
    )


def _held_out_plan(label: str, network: str, name: str) -> PaperPlan:
    """A network on which nothing was chosen, in batches of 100 that hold all classes."""
    options = replace(
        METHODS_PLAN,
        models=(Model(f"{network}/0"),),
        methods=("vanilla",),
        strategies=("train", "batch", *IMAGENET_PRIORS, ONE_PASS, AUTO),
        severities=(3, 5),
        batch_sizes=(STREAM_BATCH,),
        images=500,
        diagram_bins=None,
        hits=False,
    )
    return imagenet_plan(name, f"{label}, held out until the end, in batches of 100", options)


HELD_OUT = {
    "EfficientNet-Lite1": (LITE1, "auto-lite1-held-out"),
    "EfficientNet-Lite2": (LITE2, "auto-lite2-held-out"),
}
"""By label: the network and the plan."""

CIFAR10_AUTO_PLANS = _cifar10_plans(RESNET20_PLANS)
IMAGENET_AUTO_PLANS = (
    *(plan for network in IMAGENET_NETWORKS for plan in _imagenet_plans(network)),
    *(_held_out_plan(label, *names) for label, names in HELD_OUT.items()),
)
AUTO_PLANS = ("methods", *(plan.name for plan in (*CIFAR10_AUTO_PLANS, *IMAGENET_AUTO_PLANS)))
"""The names of all plans that `auto` needs; `methods` has `train` and `batch` for ResNet-20."""
