"""`predbn doctor`: are the stored statistics of a model right, has new data shifted, and what should be done?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from predbn.common import PredbnError, progress_bar

from .inputs import open_images, open_reference
from .option_sets import ModelOptions, Output
from .options import MAX_COUNT, Corruption, Modules, Seed, Severity, import_modules, refuse_without, usage_error
from .os_errors import DEBUG, explain
from .targets import check_file

PROBLEM, FAILED = 1, 3
"""Exit codes: there is a problem, and the examination itself failed."""

_ON_THE_PAGE = ("model", "weights", "reference", "data", "corruption", "severity", "images", "batch_size", "seed")
"""The options that say how a page was made."""


def doctor_command(
    context: typer.Context,
    model: ModelOptions,
    output: Output,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Clean data as the model knows it, ideally training data: sample, cifar10, a .npy file or a folder.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="New data, which may have shifted, named likewise.")] = None,
    corruption: Corruption = None,
    severity: Severity = 3,
    images: Annotated[
        int,
        typer.Option(
            min=32, max=MAX_COUNT, help="At most this many examples of data and of reference, drawn at random."
        ),
    ] = 1000,
    batch_size: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="Examples predicted at once.")] = 100,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write an HTML page with figures to this file.")] = None,
    modules: Modules = None,
) -> None:
    """Say whether the stored batch norm statistics of a model are right, whether new data has shifted, and what to do.

    No labels are needed. Without data it reads the model; with a reference it sees whether statistics are stale; with
    data too it says in which layers the data has shifted, and whether that matters.

    The exit code is 0 if nothing needs to be done, 1 if something does, 2 for a wrong argument, and 3 if the model
    could not be examined.

    Examples:

      predbn doctor --model file:w.pt#resnet50-v1
      predbn doctor --model zoo:resnet20-cifar10/batch/0 --reference sample \\
          --data sample --shift fog --out d.html
      predbn doctor --model mine.net:build --weights averaged.pt \\
          --reference train-pictures --json
    """
    if reference is None:
        refuse_without(context, "--reference", ["data", "images", "batch_size", "seed"])
    if data is None:
        refuse_without(context, "--data", ["corruption", "severity"])
    if corruption is None:
        refuse_without(context, "--shift", ["severity"])
    import_modules(modules, [model.model])
    with _report_failure(output.as_json):
        from predbn.diagnostics import examine
        from predbn.shifts import find_corruption

        if out is not None:
            check_file(out)
        if corruption is not None:
            with usage_error("--shift"):
                find_corruption(corruption)
        classifier = model.load(reference, data)
        reference_data = None if reference is None else open_reference(reference, classifier, images, seed=seed)
        new_data = None
        if data is not None:
            preprocessing = classifier.info.preprocessing
            shift = {"severity": severity, "seed": seed}
            new_data = open_images(data, "data", preprocessing, images, option="--data", corruption=corruption, **shift)
        with progress_bar(output.console, "examining", unit="batches") as show:
            examination = examine(
                classifier,
                reference_data,
                new_data,
                batch_size=batch_size,
                seed=seed,
                progress=lambda done, total: show(done, total or None),
            )
        if out is not None:
            from predbn import __version__
            from predbn.norm import device_of
            from predbn.report import write_examination

            settings = {name: context.params[name] for name in _ON_THE_PAGE}
            if corruption is None:
                settings["severity"] = None
            settings |= {"device": device_of(classifier), "predbn": __version__}
            settings["preprocessing"] = classifier.info.preprocessing.describe()
            write_examination(out, examination, settings)
    if output.as_json:
        page = None if out is None else str(out)
        typer.echo(json.dumps({**examination.to_dict(), "page": page}, indent=1, allow_nan=False))
    for sentence in examination.sentences():
        output.say(f"{sentence}\n")
    if out is not None:
        output.say(f"The page is {out}.")
    if not examination.is_healthy:
        raise typer.Exit(PROBLEM)


@contextmanager
def _report_failure(as_json: bool) -> Iterator[None]:
    """Let a failure end with a code of its own, so that CI does not mistake it for a problem."""
    try:
        yield
    except (PredbnError, OSError) as error:
        if os.environ.get(DEBUG):
            raise
        sentence = explain(error) if isinstance(error, OSError) else str(error)
        if as_json:
            typer.echo(json.dumps({"error": sentence}))
        typer.echo(f"error: {sentence}", err=True)
        raise typer.Exit(FAILED) from None
