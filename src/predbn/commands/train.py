"""`predbn train` and `predbn tune`."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from predbn.common import TrainingError, finish, part_of
from predbn.training import Recipe, best, enqueue_best, open_study, produce, search, table, tuned, unfinished

from .train_criteo import train_criteo
from .train_imagenet import train_imagenet
from .training_arguments import Device, Norm, OnSample, Quiet, Root, device_of, ranges_of, seeds_of, sets_of
from .training_progress import epochs_bar

__all__ = ["train_app", "tune_app"]

train_app = typer.Typer(help="Train the paper's networks.", no_args_is_help=True)
tune_app = typer.Typer(help="Search for the numbers of a training recipe.", no_args_is_help=True)
train_app.command("criteo")(train_criteo)
train_app.command("imagenet")(train_imagenet)


@train_app.command("cifar10")
def train_cifar10(
    norm: Norm = "batch",
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0-9 or 0,3,7: one network each.")] = "0",
    out: Annotated[Path, typer.Option(help="Folder for weights, cards and logs.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted training was.")] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; 100 unless given.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images a step; 512 unless given.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Adam's learning rate; the tuned one unless given.")
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="Adam's β₁; the tuned one unless given.")] = None,
    adam_eps: Annotated[float | None, typer.Option(help="Adam's ε; the tuned one unless given.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay; the tuned one unless given.")] = None,
    decoupled: Annotated[
        bool | None, typer.Option("--decoupled/--l2", help="Kind of weight decay; the tuned one unless given.")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Networks trained side by side on the device.")] = 10,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Epochs between checkpoints.")] = 10,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs beside the CSV.")] = False,
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
    given: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "adam_eps": adam_eps,
        "weight_decay": weight_decay,
        "decoupled": decoupled,
    }
    try:
        recipe = replace(tuned(norm), **{name: value for name, value in given.items() if value is not None})
    except TrainingError as error:
        raise typer.BadParameter(str(error)) from None
    numbers = seeds_of(seeds)
    rounds = math.ceil(len(unfinished(recipe, numbers, out, resume=resume)) / at_once)
    sets = sets_of(root, on_sample, device_of(device))
    console = Console(quiet=quiet, highlight=False)
    accuracies: list[float] = []

    def finished(seed: int, card: dict[str, Any]) -> None:
        scores = card["test"]
        accuracies.append(scores["accuracy"])
        console.print(
            f"{norm}/{seed}: test accuracy {scores['accuracy']:.2%}, Brier {scores['brier']:.4f}, "
            f"ECE {scores['ece']:.4f}"
        )

    with epochs_bar(console, f"{norm}, seeds {seeds}", rounds=rounds, epochs=recipe.epochs) as on_epoch:
        produce(
            recipe,
            numbers,
            sets,
            out,
            at_once=at_once,
            resume=resume,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            on_epoch=on_epoch,
            on_network=finished,
        )
    if len(accuracies) > 1:
        console.print(f"mean test accuracy {sum(accuracies) / len(accuracies):.2%} over {len(accuracies)} seeds")
    console.print(f"Weights, cards and logs are in {out}.", markup=False)


@tune_app.command("cifar10")
def tune_cifar10(
    norm: Norm = "batch",
    trials: Annotated[int, typer.Option(min=1, help="Trials that the study shall have when this ends.")] = 30,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of a trial; the schedule is shortened with it.")] = 100,
    finalists: Annotated[
        int, typer.Option(min=0, help="How many of the best to run again, longer, to choose among.")
    ] = 0,
    finalist_epochs: Annotated[int, typer.Option(min=1, help="Epochs of a finalist.")] = 40,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Journal file, or a database such as sqlite:///search.db; search/<norm>.journal unless given."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file for the table of trials.")] = None,
    seed: Annotated[int, typer.Option(help="What all draws follow from.")] = 0,
    decoupled: Annotated[bool, typer.Option("--decoupled/--l2", help="Kind of weight decay.")] = False,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=LOW,HIGH", help="Another range than the paper's; may be repeated."),
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Trials trained side by side on the device.")] = 10,
    device: Device = "auto",
    root: Root = None,
    on_sample: OnSample = False,
    quiet: Quiet = False,
) -> None:
    """Random search in the paper's ranges, by accuracy on the 5,000 validation images.

    It goes on where it was when it is started again; several machines may share one storage.

    Examples: predbn tune cifar10 --norm batch --trials 32 --epochs 16

    predbn tune cifar10 --norm layer --trials 10 --storage sqlite:///search.db --out layer.csv
    """
    limits = ranges_of(ranges or [])
    sets = sets_of(root, on_sample, device_of(device))
    console = Console(quiet=quiet, highlight=False)
    recipe = Recipe(norm=norm, epochs=epochs, decoupled=decoupled, **({"batch_size": 100} if on_sample else {}))
    family = f"{'cifar10-sample' if on_sample else 'cifar10'}/{norm}{'/decoupled' if decoupled else ''}"

    def study_of(name: str, what: str, recipe: Recipe, count: int, earlier: Any = None) -> Any:
        study = open_study(storage or f"search/{norm}.journal", f"{family}/{name}", seed=seed)
        if earlier is not None:
            enqueue_best(study, earlier, count)
        rounds = math.ceil(max(0, count - len(table(study))) / at_once)
        with epochs_bar(console, f"{norm}, {count} {what}", rounds=rounds, epochs=recipe.epochs) as on_epoch:
            search(study, recipe, sets.on_device, trials=count, at_once=at_once, ranges=limits, on_epoch=on_epoch)
        return study

    study = study_of(f"{epochs}", "trials", recipe, trials)
    rows = table(study)
    if finalists:
        recipe = replace(recipe, epochs=finalist_epochs)
        study = study_of(f"finalists/{finalist_epochs}", "finalists", recipe, finalists, earlier=study)
        rows = table(study) + rows
    if out is not None:
        _write_table(out, rows)
    for row in rows[:5]:
        console.print(
            f"trial {row['trial']:>3}: validation accuracy {row['validation_accuracy']:.2%}, learning rate "
            f"{row['learning_rate']:.3g}, 1 − momentum {row['one_minus_momentum']:.3g}, eps {row['adam_eps']:.2g}, "
            f"weight decay {row['weight_decay']:.3g}"
        )
    found = best(study, recipe)
    console.print(
        f"{len(rows)} trials; best: --learning-rate {found.learning_rate:g} --momentum {found.momentum:g} "
        f"--adam-eps {found.adam_eps:g} --weight-decay {found.weight_decay:g} {'--decoupled' if decoupled else '--l2'}"
    )


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with part_of(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    finish(path)
