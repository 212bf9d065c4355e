"""`predbn recompute`: replace the batch norm statistics of a model by those of data, and write the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from predbn.common import progress_bar

from .inputs import ImageSubset, open_reference
from .interrupts import if_interrupted
from .option_sets import ModelOptions, Output
from .options import MAX_COUNT
from .targets import check_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


class _Loader:
    """The pictures of a data set in batches, as often as they are needed."""

    def __init__(self, data: ImageSubset, size: int) -> None:
        self.data, self.size = data, size

    def __len__(self) -> int:
        return -(-len(self.data) // self.size)

    def __iter__(self) -> Iterator[Tensor]:
        return (batch.images for batch in self.data.batches(self.size))


def recompute_command(
    model: ModelOptions,
    output: Output,
    data: Annotated[
        str,
        typer.Option(
            help="Pictures as the model was trained on, without labels: sample, cifar10, a .npy file or a folder.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, a .safetensors file with all weights.")],
    images: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="At most this many, drawn at random.")] = 10_000,
    batch_size: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Pictures that are predicted at once; it changes no result.")
    ] = 100,
    one_pass: Annotated[
        bool, typer.Option("--one-pass", help="Read the data once: faster, but it depends a little on the batch size.")
    ] = False,
) -> None:
    """Replace the batch norm statistics of a model by those of data, exactly, and write its weights to a new file.

    For averaged weights (SWA, EMA), merged or edited weights, and weights trained in small batches.

    Example:

      predbn recompute --model mypkg.models:build --weights ema.pt \\
          --data train/ --out new.safetensors
    """
    from predbn.models import write_weights
    from predbn.norm import recompute

    if out.suffix != ".safetensors":
        raise typer.BadParameter(f"{out} must end in .safetensors, the format it is written in.", param_hint="--out")
    if out.exists():
        raise typer.BadParameter(f"{out} exists: remove it, or choose another name.", param_hint="--out")
    check_file(out)
    classifier = model.load(data)
    source = open_reference(data, classifier, images, option="--data")
    unfinished = out.with_name(out.name + ".unfinished")
    kept = f"the layers that are done are in {unfinished}; run the same command again to go on."
    with (
        if_interrupted("nothing was written." if one_pass else kept),
        progress_bar(output.console, "batches") as progress,
    ):
        recompute(
            classifier,
            _Loader(source, batch_size),
            exact=not one_pass,
            progress=lambda done, total: progress(done, total or None),
            checkpoint=None if one_pass else unfinished,
        )
    card = {"recomputed": {"model": model.model, "data": data, "images": len(source), "exact": not one_pass}}
    write_weights(out, classifier.network.state_dict(), card, half=False)
    output.result(
        f"{out} has the weights with the statistics of {len(source)} pictures.", out=out, **card["recomputed"]
    )
