"""`predbn onnx`: adapt ONNX files, and say what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from predbn.common import AdaptationError, progress_bar

from .help import App
from .inputs import open_images
from .option_sets import Output, PreprocessingOptions
from .options import MAX_COUNT, Json, refuse_without, usage_error
from .targets import check_file

if TYPE_CHECKING:
    from predbn.models import Preprocessing
    from predbn.onnx import Description

_OPTIONS = {"loader=…": "--data", "layers=…": "--layers", "convolutions=True": "--convolutions"}

onnx_app = App("Adapt ONNX files, and say what they hold.")


@onnx_app.command("adapt")
def adapt_command(
    context: typer.Context,
    output: Output,
    prepared: PreprocessingOptions,
    model: Annotated[Path, typer.Argument(help="The ONNX file to read.")],
    out: Annotated[Path, typer.Argument(help="The ONNX file to write.")],
    strategy: Annotated[
        str,
        typer.Option(
            help="Where the statistics come from: batch, 'prior(N=16)', auto, which takes one pass, or 'ema' and "
            "'frozen', whose state is an input and an output of the file."
        ),
    ] = "batch",
    data: Annotated[
        str | None,
        typer.Option(
            help="Source data without labels, for auto and for files whose batch norm was folded: inputs of the model "
            "as floats in a .npy file; or pictures as a folder or as bytes in a .npy file, with --size, --mean and "
            "--std.",
        ),
    ] = None,
    convolutions: Annotated[
        bool | None,
        typer.Option(
            help="Insert statistics behind convolutions that batch norm was folded into; by default if the file has no "
            "batch norm left and there is --data."
        ),
    ] = None,
    robust: Annotated[
        bool | None, typer.Option(help="Bound the influence of each example on the moments; by default with auto.")
    ] = None,
    layers: Annotated[
        list[str] | None, typer.Option(help="Only layers whose node has such a name, as in '*layer4*'.")
    ] = None,
    images: Annotated[int, typer.Option(min=2, max=MAX_COUNT, help="Use at most this many source examples.")] = 2000,
    batch_size: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Examples that are predicted at once.")] = 50,
) -> None:
    """Write a copy of an ONNX file whose batch norm uses the statistics of the batch being predicted.

    Examples:

      predbn onnx adapt resnet.onnx adapted.onnx
      predbn onnx adapt resnet.onnx adapted.onnx --strategy auto \\
          --data pictures --size 224 \\
          --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
    """
    from predbn.norm import find_strategy
    from predbn.onnx import adapt

    if data is None:
        refuse_without(context, "--data", ["mean", "std", "size", "images", "batch_size"])
    with usage_error("--strategy"):
        find_strategy(strategy)
    loader = None if data is None else _source_batches(model, data, prepared.preprocessing(), images, batch_size)
    check_file(out)
    with progress_bar(output.console, "calibrating", unit="batches") as show:
        try:
            description = adapt(
                model,
                out,
                strategy,
                loader=loader,
                robust=robust,
                layers=layers or "all",
                convolutions=convolutions,
                progress=lambda done, total: show(done, total or None),
            )
        except AdaptationError as error:
            raise AdaptationError(_with_options(str(error))) from error
    output.result(f"{out} is written. {_with_options(' '.join(description.sentences()))}", **description.to_dict())


@onnx_app.command("describe")
def describe_command(
    model: Annotated[Path, typer.Argument(help="The ONNX file to read.")],
    as_json: Json = False,
) -> None:
    """Say which batch norm layers a file has, and for an adapted one which nodes were changed, and how.

    Example:

      predbn onnx describe adapted.onnx
    """
    from predbn.onnx import describe

    description = describe(model)
    if as_json:
        typer.echo(json.dumps(description.to_dict(), indent=1))
    else:
        _print(description)


def _with_options(message: str) -> str:
    """With options in place of the arguments of Python."""
    for argument, option in _OPTIONS.items():
        message = message.replace(argument, option)
    return message


def _print(description: Description) -> None:
    for sentence in description.sentences():
        typer.echo(_with_options(sentence))
    for layer in description.layers:
        channels = "" if layer.channels is None else f", {layer.channels} channels"
        typer.echo(f"  {layer.name} ({layer.operator}{channels})")


def _source_batches(
    model: Path, data: str, preprocessing: Preprocessing | None, most: int, batch_size: int
) -> Iterator[Any]:
    """Batches of inputs as the model takes them."""
    import numpy as np

    from predbn.models import Normalise

    if Path(data).suffix == ".npy":
        try:
            inputs = np.load(data, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            raise typer.BadParameter(f"{data} is not a .npy file with an array.", param_hint="--data") from None
        if inputs.dtype.kind == "f" and inputs.ndim > 1:
            if preprocessing is not None:
                raise typer.BadParameter("floats are taken as they are: leave it out.", param_hint="--size")
            return (np.array(inputs[i : i + batch_size]) for i in range(0, min(len(inputs), most), batch_size))
    if preprocessing is None:
        raise typer.BadParameter(
            "pictures need to be prepared as in training: add --size, --mean and --std, such as --size 224 --mean "
            "0.485,0.456,0.406 --std 0.229,0.224,0.225.",
            param_hint="--data",
        )
    if preprocessing.in_channels == 1 and _channels(model) == 3:
        preprocessing = replace(preprocessing, mean=preprocessing.mean * 3, std=preprocessing.std * 3)
    normalise = Normalise(preprocessing)
    source = open_images(data, "reference", preprocessing, most, option="--data")
    return (normalise(batch.images).numpy() for batch in source.batches(batch_size))


def _channels(model: Path) -> int:
    """The channels of the first input of an ONNX file; 0 if it does not say."""
    import onnx

    sides = onnx.load(model, load_external_data=False).graph.input[0].type.tensor_type.shape.dim
    return sides[1].dim_value if len(sides) == 4 else 0
