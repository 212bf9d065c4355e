"""What is computed for `auto`, on CIFAR-10 with the zoo and on ImageNet with two networks.

The whole grid, every network × split × batch size × strategy on all images, would cost many times as much and say no
more than its parts do: many images where a loss of half a point has to be seen, fewer where means over 95 splits
are compared.

| plan | networks | images a split | what for |
|---|---|---|---|
| `auto-methods` | ten | all | `auto` in batches of 500, also with temperature and as an ensemble, beside `methods` |
| `auto-sizes` | ten | 5,000 | `auto`, `train` and `batch` in smaller batches |
| `auto-compared` | three | 1,000 | all kinds of `auto`, and `prior` with several N, in batches of any size |
| `auto-streams` | three | 2,000 | streams of few classes at a time, `ema` among the strategies |
| `auto-mixtures` | three | all | 19 shifts in one batch |
| `auto-past` | three | 500 | what the past of a stream tells, in batches of one and five |

On ImageNet each network has four such plans; what `auto` is calibrated on are the pictures that a plan leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from predbn.evaluation import Model, Plan

from .imagenet import IMAGENET_PLANS, LITE0, METHODS, RESNET50
from .networks import WITH_BATCH_NORM, seeds_of

__all__ = [
    "ARMS",
    "AUTO",
    "CIFAR_ARM",
    "CIFAR_AUTO_PLANS",
    "IMAGENET_ARMS",
    "IMAGENET_AUTO_PLANS",
    "IMAGENET_PRIORS",
    "LARGEST",
    "ORDERS",
    "PAST",
    "PAST_SIZES",
    "PAST_STRATEGIES",
    "PRIORS",
    "SKEWED",
    "SMALLER",
    "STREAM",
    "UNCALIBRATED",
    "Arm",
]

LARGEST = 500
SMALLER = (1, 2, 5, 20, 100)
STREAM = 100
"""Images in a batch of the streams and mixtures."""
ORDERS = ("by_class", "dirichlet:0.1")
"""Streams of few classes at a time: one class after another, and classes that come in bursts."""
PRIORS = ("prior(N=4)", "prior(N=16)", "prior(N=64)")
IMAGENET_PRIORS = PRIORS[1:]
"""N = 4 is far behind in batches this small."""
IMAGENET_STREAM_SHIFTS = ("clean", "gaussian_noise", "motion_blur", "fog", "contrast", "jpeg_compression")

AUTO, SKEWED, UNCALIBRATED, PAST = "auto", "auto(skewed=True)", "auto(calibrated=False)", "auto_stream"

PAST_STRATEGIES, PAST_SIZES = ("train", "prior(N=16)", "ema", AUTO, PAST), (1, 5)
"""What is compared where the past of a stream may tell, in which batches."""


@dataclass(frozen=True)
class Arm:
    """One kind of network on one data set, and the plans that it is measured with.

    single    how the network is called
    baseline  the plan with `train` and `batch` in batches of 500
    past      the plan with `auto_stream`, if there is one
    """

    single: str
    network: str
    baseline: str
    methods: str
    sizes: str
    compared: str
    streams: str
    mixtures: str
    past: str | None = None

    @property
    def plans(self) -> tuple[str, ...]:
        """All of them, each once."""
        named = (self.baseline, self.methods, self.sizes, self.compared, self.streams, self.mixtures, self.past)
        return tuple(dict.fromkeys(plan for plan in named if plan is not None))


CIFAR_ARM = Arm(
    "ResNet-20",
    WITH_BATCH_NORM,
    baseline="methods",
    methods="auto-methods",
    sizes="auto-sizes",
    compared="auto-compared",
    streams="auto-streams",
    mixtures="auto-mixtures",
    past="auto-past",
)


def _imagenet_arm(single: str, network: str, short: str) -> Arm:
    methods, sizes, streams, mixtures = (f"auto-{short}-{each}" for each in ("methods", "sizes", "streams", "mixtures"))
    return Arm(
        single,
        network,
        baseline=methods,
        methods=methods,
        sizes=sizes,
        compared=sizes,
        streams=streams,
        mixtures=mixtures,
    )


IMAGENET_ARMS = (
    _imagenet_arm("ResNet-50", RESNET50, "resnet50"),
    _imagenet_arm("EfficientNet-Lite0", LITE0, "lite0"),
)
ARMS = (CIFAR_ARM, *IMAGENET_ARMS)

_THREE = tuple(Model(reference) for reference in seeds_of(WITH_BATCH_NORM, 3))
_ONE = _THREE[:1]
_TEN = Plan(
    models=(Model(f"{WITH_BATCH_NORM}/*"),),
    data="cifar10",
    methods=("vanilla", "temperature", "ensemble"),
    strategies=(AUTO,),
    batch_sizes=(LARGEST,),
)
_QUICK_TEN, _QUICK_IMAGES = (Model(f"{WITH_BATCH_NORM}/[0-2]"),), 40

CIFAR_AUTO_PLANS: dict[str, tuple[str, Plan, dict[str, object]]] = {
    CIFAR_ARM.methods: ("three methods with auto on every split", _TEN, {"models": _QUICK_TEN}),
    CIFAR_ARM.sizes: (
        "auto, train and prediction-time BN with batches from one image to 100",
        replace(_TEN, methods=("vanilla",), strategies=("train", "batch", AUTO), batch_sizes=SMALLER, images=5000),
        {"models": _QUICK_TEN, "batch_sizes": (20,), "severities": (5,), "images": _QUICK_IMAGES},
    ),
    CIFAR_ARM.compared: (
        "every kind of auto, and prior with several N, with batches from one image to 500 (three networks)",
        replace(
            _TEN,
            models=_THREE,
            methods=("vanilla",),
            strategies=("train", "batch", AUTO, SKEWED, UNCALIBRATED, *PRIORS),
            batch_sizes=(1, 5, 20, 100, LARGEST),
            images=1000,
        ),
        {"models": _ONE, "batch_sizes": (20,), "severities": (5,), "images": _QUICK_IMAGES},
    ),
    CIFAR_ARM.streams: (
        "batches of 100 whose classes are sorted or come in bursts, beside shuffled ones",
        replace(
            _TEN,
            models=_THREE,
            methods=("vanilla",),
            strategies=("train", "batch", AUTO, SKEWED, "prior(N=16)", "ema"),
            severities=(1, 3, 5),
            batch_sizes=(STREAM,),
            orders=("shuffled", *ORDERS),
            images=2000,
        ),
        {"models": _ONE, "batch_sizes": (20,), "severities": (5,), "images": _QUICK_IMAGES},
    ),
    CIFAR_ARM.mixtures: (
        "batches of 100 with 19 kinds of shift at once, drawn five times",
        replace(
            _TEN,
            models=_THREE,
            methods=("vanilla",),
            strategies=("train", "batch", AUTO, SKEWED),
            shifts=("mixed-19",),
            batch_sizes=(STREAM,),
            seeds=tuple(range(5)),
        ),
        {"models": _ONE, "seeds": (0, 1, 2), "images": _QUICK_IMAGES},
    ),
    "auto-past": (
        "single images and batches of five with and without the past of their stream (three networks, severity 3)",
        replace(
            _TEN,
            models=_THREE,
            methods=("vanilla",),
            strategies=PAST_STRATEGIES,
            severities=(3,),
            batch_sizes=PAST_SIZES,
            images=500,
        ),
        {"models": _ONE, "batch_sizes": (5,), "images": _QUICK_IMAGES},
    ),
}
"""What each is, the plan, and what its quick version changes."""


def _on_imagenet(arm: Arm) -> dict[str, tuple[str, Plan]]:
    methods = replace(
        IMAGENET_PLANS[METHODS][1],
        models=(Model(f"{arm.network}/0"),),
        strategies=("train", "batch", AUTO),
        batch_sizes=(LARGEST,),
        images=2000,
        diagram_bins=None,
    )
    plain = replace(methods, methods=("vanilla",))
    strategies = ("train", "batch", AUTO, UNCALIBRATED, *IMAGENET_PRIORS)
    streams = ("train", "batch", AUTO, SKEWED, "ema")
    return {
        arm.methods: (f"vanilla and temperature-scaled {arm.single} with auto on every split", methods),
        arm.sizes: (
            f"auto and the strategies that it is compared with, {arm.single} with batches from one image to 100",
            replace(plain, strategies=strategies, batch_sizes=SMALLER, images=500),
        ),
        arm.streams: (
            f"{arm.single} in batches of 100 whose classes are sorted or come in bursts",
            replace(
                plain,
                strategies=streams,
                shifts=IMAGENET_STREAM_SHIFTS,
                severities=(3,),
                batch_sizes=(STREAM,),
                orders=ORDERS,
                images=4000,
                hits=False,
            ),
        ),
        arm.mixtures: (
            f"{arm.single} in batches of 100 with 19 kinds of shift at once, drawn three times",
            replace(
                plain,
                strategies=("train", "batch", AUTO, SKEWED),
                shifts=("mixed-19",),
                batch_sizes=(STREAM,),
                seeds=(0, 1, 2),
                images=2000,
                hits=False,
            ),
        ),
    }


IMAGENET_AUTO_PLANS = {name: plan for arm in IMAGENET_ARMS for name, plan in _on_imagenet(arm).items()}
