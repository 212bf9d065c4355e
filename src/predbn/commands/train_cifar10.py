"""`predbn train cifar10`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .options import Device, Quiet, parse_device_option, usage_error
from .output import make_console
from .targets import check_folder
from .training_options import (
    Norm,
    OnSample,
    Out,
    Resume,
    Root,
    Seeds,
    TensorBoard,
    given,
    open_cifar10,
    parse_seeds,
    print_training,
)


def train_cifar10_command(
    norm: Norm = "batch",
    seeds: Seeds = "0",
    out: Out = Path("runs"),
    resume: Resume = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; by default 100.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images per step; by default 512.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's learning rate; by default the tuned one.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Adam's β₁; by default the tuned one.")] = None,
    adam_eps: Annotated[float | None, typer.Option(help="Adam's ε; by default the tuned one.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay; by default the tuned one.")] = None,
    decoupled: Annotated[
        bool | None, typer.Option("--decoupled/--l2", help="Kind of weight decay; by default the tuned one.")
    ] = None,
    padding: Annotated[int | None, typer.Option(min=0, help="Pixels around an image before cropping; 4.")] = None,
    border: Annotated[str | None, typer.Option(help="What is in them: zero (black), edge or reflect; zero.")] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Networks trained side by side on the device.")] = 10,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Epochs between checkpoints.")] = 10,
    tensorboard: TensorBoard = False,
    device: Device = "auto",
    root: Root = None,
    on_sample: OnSample = False,
    quiet: Quiet = False,
) -> None:
    """Train ResNet-20 on CIFAR-10 with the paper's recipe: 45,000 images, the last 5,000 held out for validation.

    Examples:

      predbn train cifar10 --norm batch --seeds 0-9
      predbn train cifar10 --norm group --seeds 0-2 --resume
      predbn train cifar10 --seeds 0-9 --border reflect --out runs-reflect
      predbn train cifar10 --sample --epochs 2 --batch-size 100
    """
    check_folder(out)
    from predbn.training import train_cifar10, tuned_recipe

    with usage_error():
        recipe = replace(
            tuned_recipe(norm),
            **given(
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                momentum=momentum,
                adam_eps=adam_eps,
                weight_decay=weight_decay,
                decoupled=decoupled,
                padding=padding,
                border=border,
            ),
        )
    train = partial(
        train_cifar10,
        recipe,
        parse_seeds(seeds),
        open_cifar10(root, on_sample, parse_device_option(device)),
        out,
        side_by_side=at_once,
        resume=resume,
        checkpoint_every=checkpoint_every,
        tensorboard=tensorboard,
    )
    console = make_console(quiet=quiet, soft_wrap=True)
    metrics = ("accuracy", "brier", "ece")
    print_training(console, f"{norm}, seeds {seeds}", train, lambda seed: f"{norm}/{seed}", metrics, out)
