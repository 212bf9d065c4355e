"""`predbn train imagenet`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .option_sets import Output
from .options import MAX_SEED, Device, parse_device_option, usage_error
from .targets import check_folder
from .training_options import Out, Resume, kept_by_training, recipe_fields

if TYPE_CHECKING:
    from predbn.training import ProcessGroup


def train_imagenet_command(
    context: typer.Context,
    output: Output,
    root: Annotated[Path, typer.Option(help="The folder that contains train and val.")],
    seed: Annotated[
        int, typer.Option(min=-MAX_SEED, max=MAX_SEED, help="Seed of the weights, the order and the augmentation.")
    ] = 0,
    out: Out = Path("runs"),
    epochs: Annotated[int | None, typer.Option(help="Epochs; by default 90. The schedule is scaled with it.")] = None,
    warm_up: Annotated[int | None, typer.Option(help="Epochs of warm-up; by default 5.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step on all GPUs; by default 512.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate; by default 0.2.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Nesterov momentum; by default 0.9.")] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Weight decay of filters and matrices; by default 1e-4.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Side of the images; by default 224.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Decoding processes per GPU; by default its share of the cores.")
    ] = None,
    resume: Resume = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints within an epoch.")] = 1000,
    subset: Annotated[bool, typer.Option("--subset", help="The classes are not ImageNet's 1,000.")] = False,
    device: Device = "auto",
) -> None:
    """Train ResNet-50 v1 on ImageNet with the paper's recipe, on one GPU or, with torchrun, on several.

    Examples:

      predbn train imagenet --root ~/imagenet
      torchrun --nproc-per-node 8 --no-python predbn train imagenet \\
          --root ~/imagenet --resume
    """
    from predbn.training import ImageNetRecipe, join_process_group, open_imagenet, train_imagenet

    with usage_error():
        recipe = ImageNetRecipe(**recipe_fields(context, ImageNetRecipe))
    check_folder(out)
    with join_process_group(parse_device_option(device)) as group:
        output = output if group.is_first else Output(quiet=True)
        with progress_bar(output.console, "decoding val", unit="images") as progress:
            data = open_imagenet(root, recipe.preprocessing, subset=subset, progress=progress)
        with if_interrupted(kept_by_training(out)), progress_bar(output.console, "training", unit="steps") as progress:
            card = train_imagenet(
                recipe,
                seed,
                data,
                out,
                group,
                workers=_cores_per_process(group) if workers is None else workers,
                resume=resume,
                checkpoint_every=checkpoint_every,
                progress=progress,
            )
        accuracy, path = card["validation"]["accuracy"], out / card["architecture"] / str(seed)
        said = f"Validation accuracy {accuracy:.2%}; weights, card and log are {path}.*"
        output.result(said, out=path, validation=card["validation"])


def _cores_per_process(group: ProcessGroup) -> int:
    """The cores of this machine divided by the number of processes on it."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", str(group.size)))
    return max(1, (os.cpu_count() or 1) // processes)
