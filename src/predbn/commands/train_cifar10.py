"""`predbn train cifar10`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .option_sets import Output
from .options import Device, parse_device_option, refuse_options, usage_error
from .targets import check_folder
from .training_options import (
    Norm,
    OnSample,
    Out,
    Resume,
    Root,
    Seeds,
    open_cifar10,
    parse_seeds,
    print_training,
    recipe_fields,
)


def train_cifar10_command(
    context: typer.Context,
    output: Output,
    norm: Norm = "batch",
    seeds: Seeds = "0",
    out: Out = Path("runs"),
    resume: Resume = False,
    recipe: Annotated[str, typer.Option(help="tuned (the paper's, Adam) or cosine (SGD).")] = "tuned",
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; by default the recipe's.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images per step; by default the recipe's.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate; by default the recipe's.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Adam's β₁, or that of SGD; by default the recipe's.")] = None,
    adam_eps: Annotated[float | None, typer.Option(help="Adam's ε; by default the tuned one.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay; by default the recipe's.")] = None,
    decoupled: Annotated[
        bool | None, typer.Option("--decoupled/--l2", help="Kind of weight decay; by default the recipe's.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="How the rate falls: paper or cosine; by default the recipe's.")
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option(min=0, help="Epochs in which the rate rises from 0; by default the recipe's.")
    ] = None,
    padding: Annotated[int | None, typer.Option(min=0, help="Pixels around an image before cropping; 4.")] = None,
    border: Annotated[
        str | None, typer.Option(help="What is in them: zero (black; the default), edge, or reflect (recommended).")
    ] = None,
    border_study: Annotated[
        bool,
        typer.Option(
            "--border-study", help="Train these seeds with each border of the study, in OUT/zero-4, reflect-4, zero-2."
        ),
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, help="Networks trained side by side on the device.")] = 10,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Epochs between checkpoints.")] = 10,
    device: Device = "auto",
    root: Root = None,
    on_sample: OnSample = False,
) -> None:
    """Train ResNet-20 on CIFAR-10: 45,000 images, the last 5,000 held out for validation.

    Examples:

      predbn train cifar10 --norm batch --seeds 0-9
      predbn train cifar10 --norm group --seeds 0-2 --resume
      predbn train cifar10 --seeds 0-9 --recipe cosine --border reflect
      predbn train cifar10 --seeds 0-4 --border-study --out runs-borders
      predbn train cifar10 --sample --epochs 2 --batch-size 100
    """
    check_folder(out)
    from predbn.training import BORDER_STUDY, find_cifar10_recipe, train_cifar10

    if border_study:
        refuse_options(context, ["padding", "border"], "--border-study sets it: leave out one of them.")
    with usage_error():
        defaults = find_cifar10_recipe(recipe, norm)
        chosen = replace(defaults, **recipe_fields(context, type(defaults)))
    numbers = parse_seeds(seeds)
    sets = {out: chosen}
    if border_study:
        sets = {out / name: replace(chosen, padding=width, border=kind) for name, (width, kind) in BORDER_STUDY.items()}
    data = open_cifar10(root, on_sample, parse_device_option(device))
    metrics = ("accuracy", "brier", "ece")
    for folder, recipe_of_set in sets.items():
        train = partial(
            train_cifar10,
            recipe_of_set,
            numbers,
            data,
            folder,
            side_by_side=at_once,
            resume=resume,
            checkpoint_every=checkpoint_every,
        )
        what = f"{folder.name}, {norm}" if border_study else norm
        print_training(output, f"{what}, seeds {seeds}", train, lambda seed: f"{norm}/{seed}", metrics, folder)
