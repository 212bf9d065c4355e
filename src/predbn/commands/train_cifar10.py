"""`predbn train cifar10`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from predbn.common import progress_bar

from .options import Device, Quiet, parse_device_option, usage_error
from .output import make_console
from .training_options import Norm, OnSample, Out, Resume, Root, Seeds, TensorBoard, open_cifar10, parse_seeds


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
    at_once: Annotated[int, typer.Option(min=1, help="Networks trained side by side on the device.")] = 10,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Epochs between checkpoints.")] = 10,
    tensorboard: TensorBoard = False,
    device: Device = "auto",
    root: Root = None,
    on_sample: OnSample = False,
    quiet: Quiet = False,
) -> None:
    """Train ResNet-20 on CIFAR-10 with the paper's recipe: 45,000 images, the last 5,000 held out for validation.

    Examples: predbn train cifar10 --norm batch --seeds 0-9

    predbn train cifar10 --norm group --seeds 0-2 --resume

    predbn train cifar10 --sample --epochs 2 --batch-size 100
    """
    from predbn.training import train_cifar10, tuned_recipe

    options: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "adam_eps": adam_eps,
        "weight_decay": weight_decay,
        "decoupled": decoupled,
    }
    with usage_error():
        recipe = replace(tuned_recipe(norm), **{name: value for name, value in options.items() if value is not None})
    seed_list = parse_seeds(seeds)
    data = open_cifar10(root, on_sample, parse_device_option(device))
    console = make_console(quiet=quiet, soft_wrap=True)
    accuracies: list[float] = []

    def print_scores(seed: int, card: dict[str, Any]) -> None:
        scores = card["test"]
        accuracies.append(scores["accuracy"])
        console.print(
            f"{norm}/{seed}: test accuracy {scores['accuracy']:.2%}, Brier {scores['brier']:.4f}, "
            f"ECE {scores['ece']:.4f}"
        )

    with progress_bar(console, f"{norm}, seeds {seeds}", unit="steps") as progress:
        train_cifar10(
            recipe,
            seed_list,
            data,
            out,
            side_by_side=at_once,
            resume=resume,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            progress=progress,
            on_network=print_scores,
        )
    if len(accuracies) > 1:
        console.print(f"mean test accuracy {sum(accuracies) / len(accuracies):.2%} over {len(accuracies)} seeds")
    console.print(f"Weights, cards and logs are in {out}.", markup=False)
