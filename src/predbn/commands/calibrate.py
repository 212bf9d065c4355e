"""`predbn calibrate`: measure what clean data looks like to a model, and keep it in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .inputs import open_reference
from .option_sets import ModelOptions, Output
from .options import MAX_COUNT
from .targets import check_file


def calibrate_command(
    model: ModelOptions,
    output: Output,
    data: Annotated[
        str,
        typer.Option(
            help="Clean pictures as the model knows them, without labels: sample, cifar10, a .npy file or a folder.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("calibration.safetensors"),
    images: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="At most this many, drawn at random.")] = 5000,
    batch_size: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="Pictures that are predicted at once.")] = 100,
) -> None:
    """Measure what clean data looks like to a model, for the strategies auto and auto_stream of predbn serve.

    A few thousand pictures from the training data are enough.

    Example:

      predbn calibrate --model zoo:resnet20-cifar10/batch/0 --data sample \\
          --out c.safetensors
    """
    from predbn.norm import calibrate
    from predbn.serving import save_calibration

    check_file(out)
    classifier = model.load(data)
    source = open_reference(data, classifier, images, option="--data")
    calibrate(classifier, (batch.images for batch in source.batches(batch_size)))
    save_calibration(classifier, out)
    output.result(f"{out} has the calibration with {len(source)} pictures.", out=out, images=len(source))
