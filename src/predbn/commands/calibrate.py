"""`predbn calibrate`: measure what clean data looks like to a model, and keep it in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    MAX_COUNT,
    Device,
    Mean,
    Quiet,
    Size,
    Std,
    parse_device_option,
    parse_preprocessing,
    usage_error,
)
from .output import make_console
from .targets import check_file


def calibrate_command(
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="zoo:NAME, timm:NAME, file:PATH#ARCHITECTURE or package.module:function."),
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            help="Clean pictures as the model knows them, without labels: sample, cifar10, a .npy file or a folder.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("calibration.safetensors"),
    images: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="At most so many, drawn at random.")] = 5000,
    batch_size: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="Pictures that are predicted at once.")] = 100,
    weights: Annotated[Path | None, typer.Option(help="State dict for a function of your own.")] = None,
    mean: Mean = None,
    std: Std = None,
    size: Size = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Measure what clean data looks like to a model, for the strategies auto and auto_stream of predbn serve.

    A few thousand pictures from the training data are enough.

    Example:

      predbn calibrate --model zoo:resnet20-cifar10/batch/0 --data sample \\
          --out c.safetensors
    """
    from predbn.diagnostics import open_diagnosis_data
    from predbn.models import load
    from predbn.norm import calibrate
    from predbn.serving import save_calibration

    check_file(out)
    torch_device = parse_device_option(device)
    classifier = load(model, weights=weights, preprocessing=parse_preprocessing(mean, std, size), device=torch_device)
    with usage_error("--data"):
        source = open_diagnosis_data(data, "reference", classifier.info.preprocessing, most=images)
    calibrate(classifier, (batch.images for batch in source.batches(batch_size, device=torch_device)))
    save_calibration(classifier, out)
    make_console(quiet=quiet, soft_wrap=True).print(
        f"{out} has the calibration with {len(source)} pictures.", markup=False
    )
