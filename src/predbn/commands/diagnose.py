"""`predbn diagnose`: what does a shift do inside a network, layer by layer? No labels are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from predbn.common import progress_bar

from .inputs import check_shift, load_model, open_data, open_reference, page_settings
from .options import (
    MAX_COUNT,
    Corruption,
    Device,
    Mean,
    ModelReference,
    Modules,
    Quiet,
    Seed,
    Severity,
    Size,
    Std,
    Weights,
    import_modules,
    refuse_options,
    usage_error,
)
from .output import make_console
from .targets import check_file


def diagnose_command(
    context: typer.Context,
    model: ModelReference,
    data: Annotated[
        str, typer.Option(metavar="DATA", help="Data that may have shifted: sample, cifar10, a .npy file or a folder.")
    ],
    reference: Annotated[
        str, typer.Option(metavar="DATA", help="Data that the model knows, ideally a part of its training data.")
    ] = "sample",
    corruption: Corruption = None,
    severity: Severity = 3,
    strategy: Annotated[str, typer.Option(help="Where the statistics come from, such as 'prior(N=16)'.")] = "batch",
    batch_size: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Examples predicted at once.")] = 100,
    images: Annotated[
        int,
        typer.Option(
            min=2, max=MAX_COUNT, help="At most this many examples of data and of reference, drawn at random."
        ),
    ] = 2000,
    embedding: Annotated[
        str | None, typer.Option(help="Module whose input is the embedding; by default the last linear layer.")
    ] = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    size: Size = None,
    device: Device = "auto",
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="The HTML page to write.")] = Path("diagnosis.html"),
    modules: Modules = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print sentences and rows as JSON, and nothing else.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Say what a shift does inside a network, layer by layer, and whether prediction-time BN corrects it.

    No labels are needed. The page shows distances by layer, distributions, spectra and confidence. Whether the stored
    statistics themselves are right, and what to do if not, is the question of predbn doctor.

    Examples:

      predbn diagnose --model zoo:resnet20-cifar10/batch/0 --data sample \\
          --shift fog
      predbn diagnose --model timm:resnet50.tv_in1k --reference train-pictures \\
          --data new-camera --out camera.html
      predbn diagnose --model mine.net:build --reference mine/images.npy \\
          --data new/images.npy --json
    """
    from predbn.diagnostics import diagnose
    from predbn.norm import find_strategy
    from predbn.report import write_diagnosis

    import_modules(modules, [model])
    if corruption is None:
        refuse_options(context, ["severity"], "it goes with --shift: add that, or leave it out.")
    check_file(out)
    with usage_error("--strategy"):
        find_strategy(strategy)
    check_shift(corruption)
    classifier = load_model(model, weights, mean, std, size, device)
    reference_data = open_reference(reference, classifier, images, seed=seed)
    new_data = open_data(data, classifier, images, corruption, severity, seed)
    console = make_console(quiet=quiet or as_json, soft_wrap=True)
    with progress_bar(console, "diagnosing", unit="batches") as show:
        diagnosis = diagnose(
            classifier,
            reference_data,
            new_data,
            strategy=strategy,
            batch_size=batch_size,
            embedding=embedding,
            seed=seed,
            progress=lambda done, total: show(done, total or None),
        )
    settings = page_settings(
        classifier,
        model=model,
        reference=reference,
        data=data,
        corruption=corruption,
        severity=severity,
        strategy=strategy,
        batch_size=batch_size,
        images=images,
        embedding=embedding,
        seed=seed,
    )
    write_diagnosis(out, diagnosis, settings)
    if as_json:
        typer.echo(json.dumps({**diagnosis.to_dict(), "page": str(out)}, indent=1, allow_nan=False))
    for sentence in diagnosis.sentences():
        console.print(f"{sentence}\n", markup=False)
    console.print(f"The page is {out}.", markup=False)
