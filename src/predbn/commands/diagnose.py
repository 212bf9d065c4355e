"""`predbn diagnose`: look into a model on shifted data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .preprocessing import preprocessing_of

__all__ = ["diagnose_command"]


def diagnose_command(
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="zoo:NAME, timm:NAME, file:PATH#ARCHITECTURE or package.module:function."),
    ],
    data: Annotated[
        str, typer.Option(metavar="DATA", help="What may have shifted: sample, cifar10, a .npy file or a folder.")
    ],
    reference: Annotated[
        str, typer.Option(metavar="DATA", help="What the model knows, best a part of its training data; likewise.")
    ] = "sample",
    corruption: Annotated[str | None, typer.Option(help="Corrupt the data first, with fog for example.")] = None,
    severity: Annotated[int, typer.Option(min=1, max=5, help="How strongly.")] = 3,
    strategy: Annotated[str, typer.Option(help="Where the statistics come from, such as 'prior(N=16)'.")] = "batch",
    batch_size: Annotated[int, typer.Option(min=1, help="Examples predicted at once.")] = 100,
    images: Annotated[int, typer.Option(min=2, help="At most so many of each data, drawn at random.")] = 2000,
    embedding: Annotated[
        str | None, typer.Option(help="Module whose input is the embedding; the last linear layer unless given.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="State dict for a function of yours.")] = None,
    mean: Annotated[
        str | None, typer.Option(help="Its means by channel on the scale of 0 to 1, as 0.485,0.456,0.406.")
    ] = None,
    std: Annotated[str | None, typer.Option(help="Its standard deviations, on the same scale.")] = None,
    size: Annotated[str | None, typer.Option(help="Its height and width: 224, or 224x192.")] = None,
    device: Annotated[str, typer.Option(help="cuda, cpu, or auto for the GPU where there is one.")] = "auto",
    seed: Annotated[int, typer.Option(help="What all draws follow from.")] = 0,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("diagnosis.html"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print sentences and rows as JSON, and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Say whether data has shifted, in which layers of a model, and whether prediction-time BN brings it back.

    No labels are needed. The page shows distances by layer, distributions, spectra and confidence.

    Examples: predbn diagnose --model zoo:resnet20-cifar10/batch/0 --data sample --corruption fog

    predbn diagnose --model timm:resnet50.tv_in1k --reference train-pictures --data new-camera --out camera.html

    predbn diagnose --model mine.net:build --reference mine/images.npy --data new/images.npy --json
    """
    from predbn.models import load
    from predbn.norm import find_strategy
    from predbn.shifts import find_corruption

    prepared, place = preprocessing_of(mean, std, size), _device(device)
    with _usage("--strategy"):
        find_strategy(strategy)
    with _usage("--corruption"):
        find_corruption(corruption or "fog")
    classifier = load(model, weights=weights, preprocessing=prepared, device=place)
    _run(
        classifier,
        {
            "model": model,
            "reference": reference,
            "data": data,
            "corruption": corruption,
            "severity": severity if corruption else None,
            "strategy": strategy,
            "batch_size": batch_size,
            "images": images,
            "embedding": embedding,
            "seed": seed,
            "device": str(place),
        },
        out,
        as_json,
        quiet,
    )


def _run(classifier: Any, asked: dict[str, Any], out: Path, as_json: bool, quiet: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from predbn import __version__
    from predbn.diagnostics import diagnose
    from predbn.diagnostics import open_diagnosis_data as open_data
    from predbn.report import write_diagnosis

    stated = classifier.description.preprocessing
    options = {"most": asked["images"], "seed": asked["seed"]}
    with _usage("--reference"):
        known = open_data(asked["reference"], "reference", stated, **options)
    with _usage("--data"):
        shift = {"corruption": asked["corruption"], "severity": asked["severity"] or 3}
        new = open_data(asked["data"], "data", stated, **shift, **options)
    console = Console(quiet=quiet or as_json, highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("looking into the model", total=None)
        found = diagnose(
            classifier,
            known,
            new,
            strategy=asked["strategy"],
            batch_size=asked["batch_size"],
            embedding=asked["embedding"],
            seed=asked["seed"],
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    write_diagnosis(out, found, {**asked, "predbn": __version__, "preprocessing": stated.describe()})
    if as_json:
        typer.echo(json.dumps({**found.to_dict(), "page": str(out)}, indent=1, allow_nan=False))
    for sentence in found.sentences():
        console.print(f"{sentence}\n", markup=False)
    console.print(f"The page is {out}.", markup=False)


@contextmanager
def _usage(option: str) -> Iterator[None]:
    """What cannot be read from an option's value is a usage error."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _device(name: str) -> Any:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise typer.BadParameter(
            "there is no GPU that PyTorch can use here: leave it out, or say cpu.", param_hint="--device"
        )
    try:
        return torch.device(name)
    except RuntimeError:
        raise typer.BadParameter(f"{name!r} is not cuda, cpu or auto.", param_hint="--device") from None
