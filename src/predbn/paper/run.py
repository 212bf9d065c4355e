"""Carry out the plans that experiments need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from predbn.common import NotMeasured, PaperError, finish, part_of
from predbn.data import DataError
from predbn.evaluation import Engine, Plan, Results, evaluate, open_images
from predbn.models import ModelError

from .clicks import run_clicks
from .crops import CROPPED, cropped
from .imagenet import IMAGENET, run_imagenet
from .inside import look_inside
from .networks import missing, open_variants
from .plans import CRITEO, INSIDE, PLANS

__all__ = ["Progress", "run_plan", "run_plans"]

Progress = Callable[[int, int, str], object]


def run_plans(
    names: Iterable[str],
    folder: str | Path,
    *,
    quick: bool = False,
    engine: Engine | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> dict[str, str]:
    """Carry out plans, each in a folder of its name, and give the reason for each that cannot be, by name.

    A plan is measured with those of its networks that are here. What is there already is not computed again, so
    that it may be killed at any moment, and called again when more networks have come. `progress` is called with a
    plan's name and gives what is told how far it is.
    """
    left_out = {}
    for name in names:
        told = None if progress is None else progress(name)
        reason = run_plan(name, folder, quick=quick, engine=engine, progress=told)
        if reason is not None:
            left_out[name] = reason
    return left_out


def run_plan(
    name: str,
    folder: str | Path,
    *,
    quick: bool = False,
    precision: str = "fp32",
    engine: Engine | None = None,
    progress: Progress | None = None,
    root: str | Path | None = None,
    weights: str | Path | None = None,
    images: int | None = None,
) -> str | None:
    """Carry out one plan; None, or the reason why none of it or not all of it can be measured.

    Data, weights or packages that are not there or not what they should be are such a reason, and nothing is raised:
    of many plans the others can still be carried out.

    `precision` is that of predictions; networks are looked into, and crops compared, in single precision. `root` is
    the folder with the rows and networks of K1 (see `clicks`) or with the pictures of ImageNet, `weights` a file with
    ResNet-50 v1's (see `imagenet`). With `images` only so many of each split are used: a trial, whose results are
    marked as quick.
    """
    plan = PLANS[name].of(quick)
    if name not in (INSIDE, *CROPPED):
        plan = replace(plan, precision=precision)  # type: ignore[arg-type]
    if images is not None:
        plan = replace(plan, images=images)
    out = Path(folder) / name
    small = quick or images is not None
    _refuse_other_size(out, small)
    told = {"quick": quick, "engine": engine, "progress": progress}
    gap = None
    try:
        if PLANS[name].home == CRITEO:
            run_clicks(name, plan, out, root=Path(root or CRITEO), **told)  # type: ignore[arg-type]
        elif PLANS[name].home == IMAGENET:
            places = {"root": root and Path(root), "weights": weights and Path(weights)}
            run_imagenet(plan, out, **places, **told)  # type: ignore[arg-type]
        else:
            gap = _run_cifar10(name, plan, out, engine, progress)
    except (NotMeasured, DataError, ModelError) as lack:
        return str(lack).removesuffix(".")
    _mark(out, name, small, precision)
    return gap


def _run_cifar10(name: str, plan: Plan, out: Path, engine: Engine | None, progress: Progress | None) -> str | None:
    """Carry out a plan with those of its networks that the zoo has; None, or what it lacks of the others."""
    lacking = {model: missing(model) for model in plan.models}
    there = tuple(model for model, gap in lacking.items() if gap is None)
    gaps = list(dict.fromkeys(gap for gap in lacking.values() if gap is not None))
    reason = f"the zoo has no {', '.join(gaps)}" if gaps else None
    if not there:
        raise NotMeasured(reason)
    plan = replace(plan, models=there)
    opened = {"engine": engine, "models": open_variants(there), "progress": progress}
    if name == INSIDE:
        look_inside(plan, out, **opened)  # type: ignore[arg-type]
    else:
        data = cropped(open_images(plan.data, "test"), name) if name in CROPPED else None
        evaluate(plan, out, data=data, **opened)  # type: ignore[arg-type]
    return reason


def _mark(out: Path, name: str, quick: bool, precision: str) -> None:
    """Say on the run card what the run is for, and whether it is a quick one."""
    path = out / "card.json"
    card = json.loads(path.read_text(encoding="utf-8"))
    options = f"{' --quick' if quick else ''}{'' if precision == 'fp32' else f' --precision {precision}'}"
    said = {"plan": name, "quick": quick, "command": f"predbn paper run all{options}"}
    if quick:
        said["warning"] = "a small part of the data: it shows that everything works, and is no evidence"
    part_of(path).write_text(json.dumps({"paper": said, **card}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    finish(path)


def _refuse_other_size(out: Path, quick: bool) -> None:
    if not (out / "results.parquet").is_file():
        return
    was_quick = Results.load(out).card.get("paper", {}).get("quick", quick)
    if was_quick != quick:
        found, wanted = ("quick", "full") if was_quick else ("full", "quick")
        raise PaperError(f"{out} holds {found} results, and {wanted} ones are asked for: choose another --results.")
