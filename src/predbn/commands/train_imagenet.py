"""`predbn train imagenet`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from predbn.training import ImageNetRecipe, Processes, joined, open_data, place_of, train
from predbn.training import Progress as Done

__all__ = ["train_imagenet"]


def train_imagenet(
    root: Annotated[Path, typer.Option(help="The folder that holds train and val.")],
    seed: Annotated[int, typer.Option(help="What weights, order and augmentation follow from.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for weights, card and log.")] = Path("runs"),
    epochs: Annotated[int | None, typer.Option(help="Epochs; 90 unless given. Drops move with it.")] = None,
    warm_up: Annotated[int | None, typer.Option(help="Epochs of warm-up; 5 unless given.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images a step of all GPUs together; 512 unless given.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="0.2 unless given.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Nesterov's; 0.9 unless given.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="On filters and matrices; 1e-4 unless given.")] = None,
    size: Annotated[int | None, typer.Option(help="Side of the pictures; 224 unless given.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that decode, for each GPU; the cores' share.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted training was.")] = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints within an epoch.")] = 1000,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs beside the CSV.")] = False,
    subset: Annotated[bool, typer.Option("--subset", help="The classes are not ImageNet's 1,000.")] = False,
    device: Annotated[str, typer.Option(help="cuda, cpu, or auto for GPUs where there are any.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Train ResNet-50 v1 on ImageNet with the paper's recipe, on one GPU or, with torchrun, on several.

    Examples: predbn train imagenet --root ~/imagenet

    torchrun --nproc-per-node 8 --no-python predbn train imagenet --root ~/imagenet --resume
    """
    given: dict[str, Any] = {
        "epochs": epochs,
        "warm_up": warm_up,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "size": size,
    }
    recipe = replace(ImageNetRecipe(), **{name: value for name, value in given.items() if value is not None})
    with joined(_device(device)) as processes, _bar(quiet or not processes.first) as bar:
        decoding = bar.add_task("decoding val", total=None, visible=False)
        data = open_data(
            root,
            recipe.preprocessing,
            subset=subset,
            report=lambda done, total: bar.update(decoding, completed=done, total=total, visible=done < total),
        )
        task = bar.add_task("training", total=recipe.epochs)

        def on_step(done: Done) -> None:
            accuracy = "" if done.accuracy is None else f", validation {done.accuracy:.1%}"
            bar.update(task, completed=done.epoch + done.step / done.steps)
            bar.update(task, description=f"epoch {min(done.epoch + 1, recipe.epochs)} of {recipe.epochs}{accuracy}")

        card = train(
            recipe,
            data,
            out,
            processes,
            seed=seed,
            workers=_workers(processes) if workers is None else workers,
            resume=resume,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            on_step=on_step,
        )
        accuracy = card["validation"]["accuracy"]
        place = place_of(out, seed)
        bar.console.print(f"Validation accuracy {accuracy:.2%}; weights, card and log are {place}.*", markup=False)


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cuda", "cpu"):
        raise typer.BadParameter(f"{name!r} is not cuda, cpu or auto.", param_hint="--device")
    if name == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter(
            "there is no GPU that PyTorch can use here: leave it out, or say cpu.", param_hint="--device"
        )
    return name


def _workers(processes: Processes) -> int:
    """The cores of this machine, shared by the processes on it."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", str(processes.count)))
    return max(1, (os.cpu_count() or 1) // here)


def _bar(quiet: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(quiet=quiet, highlight=False, soft_wrap=True))
