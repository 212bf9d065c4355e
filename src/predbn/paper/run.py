"""Run the plans that experiments need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from predbn.common import (
    MissingPackageError,
    NotMeasured,
    PaperError,
    ProgressWithNote,
    lock_folder,
    read_json,
    write_json,
)
from predbn.data import DataError, Images, open_images
from predbn.evaluation import Engine, Plan, Results, evaluate
from predbn.models import Classifier, ModelError, load

from .crops import border_of, crop_like_training
from .networks import TrainedNetworks, load_eps_variants, missing_weights
from .plans import CRITEO, IMAGENET, PLANS
from .plans.cifar10 import ACTIVATIONS, CROPS, CROPS_CONTINUED, SINGLE_PRECISION
from .run_activations import run_activations
from .run_criteo import run_criteo
from .run_imagenet import run_imagenet


def run_plan(
    name: str,
    folder: str | Path,
    *,
    quick: bool = False,
    precision: str = "fp32",
    engine: Engine | None = None,
    progress: ProgressWithNote | None = None,
    root: str | Path | None = None,
    weights: str | Path | None = None,
    images: int | None = None,
    networks: TrainedNetworks | None = None,
) -> str | None:
    """Run one plan in a subfolder of `folder`, and return None, or the reason if it could not run or only in part.

    Results that exist already are not computed again, so a run can be killed at any time and continued, also when
    further networks have been added. If data, weights or packages are missing or wrong, that is the returned reason
    and not an exception, so that other plans can still run.

    precision  of the predictions; activations and crops are always evaluated in single precision
    root       the folder with the data and networks of K1 (see `run_criteo`), or with the images of ImageNet
    weights    a file with the weights of ResNet-50 v1 (see `run_imagenet`)
    images     evaluate only this many images of each split, if the time does not suffice for all; documents say so
    networks   for CIFAR-10, networks that were trained, in place of those of the zoo
    """
    plan = PLANS[name].version(quick)
    if name not in (ACTIVATIONS, CROPS, CROPS_CONTINUED, SINGLE_PRECISION):
        plan = replace(plan, precision=precision)  # type: ignore[arg-type]
    if images is not None:
        plan = replace(plan, images=images)
    out = Path(folder) / name
    _refuse_other_size(out, quick, images)
    options = {"quick": quick, "engine": engine, "progress": progress}
    reason = None
    try:
        if PLANS[name].data_set == CRITEO:
            run_criteo(name, plan, out, root=Path(root or CRITEO), **options)  # type: ignore[arg-type]
        elif PLANS[name].data_set == IMAGENET:
            paths = {"root": root and Path(root), "weights": weights and Path(weights)}
            run_imagenet(plan, out, **paths, **options)  # type: ignore[arg-type]
        else:
            reason = _run_cifar10(name, plan, out, engine, progress, networks)
    except (NotMeasured, DataError, ModelError, MissingPackageError) as error:
        return str(error).removesuffix(".")
    _mark_card(out, name, quick, precision, images, networks)
    return reason


def _run_cifar10(
    name: str,
    plan: Plan,
    out: Path,
    engine: Engine | None,
    progress: ProgressWithNote | None,
    networks: TrainedNetworks | None,
) -> str | None:
    """Run a plan with those of its networks that there are, and return which ones the zoo does not have."""
    if networks is not None:
        in_memory, reason = networks.load(plan.models), None
        models = tuple(m for m in plan.models if any(n == m.name or fnmatchcase(n, m.name) for n in in_memory))
    else:
        missing = {model: missing_weights(model) for model in plan.models}
        models = tuple(model for model, weights in missing.items() if weights is None)
        names = list(dict.fromkeys(weights for weights in missing.values() if weights is not None))
        reason = f"the zoo has no {', '.join(names)}" if names else None
        if not models:
            raise NotMeasured(reason)
        in_memory = load_eps_variants(models)
    plan = replace(plan, models=models)
    options = {"engine": engine, "models": in_memory, "progress": progress}
    if name == ACTIVATIONS:
        run_activations(plan, out, **options)  # type: ignore[arg-type]
    else:
        data = _cropped(plan, name, in_memory) if name in (CROPS, CROPS_CONTINUED) else None
        evaluate(plan, out, data=data, **options)  # type: ignore[arg-type]
    return reason


def _cropped(plan: Plan, name: str, in_memory: Mapping[str, Classifier]) -> Images:
    """The test images cropped as in the training of the networks, which must all have been trained with one border.

    Crops with that border (the plan `crops`) remove the difference between training crops and whole images. Crops whose
    border continues the edge pixels (`crops-continued`) are the control: cropped, but without black.
    """
    members = [member.reference for model in plan.models for member in model.members()] if not in_memory else []
    classifiers = [*in_memory.values(), *(load(reference) for reference in members)]
    borders = {border_of(classifier.info.card) for classifier in classifiers}
    if len(borders) > 1:
        raise PaperError(f"the networks were trained with different borders, {sorted(borders)}: run them apart.")
    padding, border = borders.pop()
    images = open_images(plan.data, "test")
    return crop_like_training(images, padding, "edge" if name == CROPS_CONTINUED else border)


def _mark_card(
    out: Path, name: str, quick: bool, precision: str, images: int | None, networks: TrainedNetworks | None
) -> None:
    """Add to the run card which plan it was, whether it was quick or had a part of the images, and the command."""
    path = out / "card.json"
    options = f"{' --quick' if quick else ''}{'' if precision == 'fp32' else f' --precision {precision}'}"
    options += "" if images is None else f" --images {images}"
    options += "" if networks is None else f" --networks {networks.folder} --results {out.parent}"
    paper = {"plan": name, "quick": quick, "images": images, "command": f"predbn paper run --plan {name}{options}"}
    if quick:
        paper["warning"] = "a small part of the data: it shows that everything works, and is no evidence"
    with lock_folder(out, wait=True, error=PaperError):
        card = read_json(path, error=PaperError, remedy="run the plan again in another folder")
        write_json(path, {"paper": paper, **card})


def _refuse_other_size(out: Path, quick: bool, images: int | None) -> None:
    """Results of a plan with different numbers of images must not be mixed."""
    if not (out / "results.parquet").is_file():
        return
    paper = Results.load(out).card.get("paper")
    if paper is None:  # it was interrupted before its card was marked
        return
    present, requested = _size(paper["quick"], paper.get("images")), _size(quick, images)
    if present != requested:
        raise PaperError(f"{out} has {present} results, but this is a {requested} run: choose another --results.")


def _size(quick: bool, images: int | None) -> str:
    return f"{'quick' if quick else 'full'}{'' if images is None else f' --images {images}'}"
