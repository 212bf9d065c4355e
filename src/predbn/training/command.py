"""`predbn train` and `predbn tune`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from predbn.data import cifar10, sample
from predbn.models.normalisation import NORMALISATIONS

from .cohort import Epoch
from .criteo.command import train_criteo
from .options import device_of, seeds_of
from .produce import Sets, produce
from .recipe import Recipe
from .search import RANGES, best, enqueue_best, open_study, search, table
from .tuned import tuned

__all__ = ["train_app", "tune_app"]

train_app = typer.Typer(help="Train the paper's networks.", no_args_is_help=True)
tune_app = typer.Typer(help="Search for the numbers of a training recipe.", no_args_is_help=True)
train_app.command("criteo")(train_criteo)

Norm = Annotated[str, typer.Option(help=f"Normalisation: {', '.join(NORMALISATIONS)}.")]
Device = Annotated[str, typer.Option(help="cuda, cpu, or auto for the GPU where there is one.")]
Root = Annotated[Path | None, typer.Option(help="CIFAR-10 as downloaded; the cache of `predbn data` unless given.")]
OnSample = Annotated[bool, typer.Option("--sample", help="Train on 800 embedded images: to try it out.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


@train_app.command("cifar10")
def train_cifar10(
    norm: Norm = "batch",
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0-9 or 0,3,7: one network each.")] = "0",
    out: Annotated[Path, typer.Option(help="Folder for weights, cards and logs.")] = Path("runs"),
    epochs: Annotated[int | None, typer.Option(help="Epochs; 100 unless given.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size; 512 unless given.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's; what the search found unless given.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Adam's β₁; likewise.")] = None,
    adam_eps: Annotated[float | None, typer.Option(help="Adam's ε; likewise.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay; likewise.")] = None,
    at_once: Annotated[int, typer.Option(help="Networks trained side by side on the device.")] = 10,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted training was.")] = False,
    checkpoint_every: Annotated[int, typer.Option(help="Epochs between checkpoints.")] = 10,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs beside the CSV.")] = False,
    device: Device = "auto",
    root: Root = None,
    decoupled: Annotated[bool | None, typer.Option("--decoupled/--l2", help="Kind of weight decay; likewise.")] = None,
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
    _check_norm(norm)
    recipe = replace(tuned(norm), **{name: value for name, value in given.items() if value is not None})
    numbers = seeds_of(seeds)
    console = Console(quiet=quiet, highlight=False)
    sets = _sets(root, on_sample, device_of(device))
    accuracies: list[float] = []

    def finished(seed: int, card: dict[str, Any]) -> None:
        accuracies.append(card["test"]["accuracy"])
        scores = card["test"]
        console.print(
            f"{norm}/{seed}: test accuracy {scores['accuracy']:.2%}, Brier {scores['brier']:.4f}, "
            f"ECE {scores['ece']:.4f}"
        )

    total = -(-len(numbers) // at_once) * recipe.epochs
    with _bar(console, f"{norm}, seeds {seeds}", total) as on_epoch:
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
    trials: Annotated[int, typer.Option(help="Trials that the study shall have when this ends.")] = 30,
    epochs: Annotated[int, typer.Option(help="Epochs of a trial; the schedule is shortened with it.")] = 100,
    at_once: Annotated[int, typer.Option(help="Trials trained side by side on the device.")] = 10,
    finalists: Annotated[int, typer.Option(help="How many of the best to run again, longer, to choose among.")] = 0,
    finalist_epochs: Annotated[int, typer.Option(help="Epochs of a finalist.")] = 40,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Journal file, or a database such as sqlite:///search.db; search/<norm>.journal unless given."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file for the table of trials.")] = None,
    seed: Annotated[int, typer.Option(help="What all draws follow from.")] = 0,
    device: Device = "auto",
    root: Root = None,
    decoupled: Annotated[bool, typer.Option("--decoupled/--l2", help="Kind of weight decay.")] = False,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=LOW,HIGH", help="Another range than the paper's; may be repeated."),
    ] = None,
    on_sample: OnSample = False,
    quiet: Quiet = False,
) -> None:
    """Random search in the paper's ranges, by accuracy on the 5,000 validation images.

    It goes on where it was when it is started again; several machines may share one storage.

    Examples: predbn tune cifar10 --norm batch --trials 32 --epochs 16

    predbn tune cifar10 --norm layer --trials 10 --storage sqlite:///search.db --out layer.csv
    """
    _check_norm(norm)
    console = Console(quiet=quiet, highlight=False)
    sets = _sets(root, on_sample, device_of(device))
    recipe = Recipe(norm=norm, epochs=epochs, decoupled=decoupled, **({"batch_size": 100} if on_sample else {}))
    limits = _ranges(ranges or [])
    storage = storage or f"search/{norm}.journal"
    study = open_study(storage, f"cifar10/{norm}/{epochs}", seed=seed)
    before = len(table(study))
    total = -(-max(0, trials - before) // at_once) * epochs
    with _bar(console, f"{norm}, {trials} trials", total) as on_epoch:
        search(study, recipe, sets.on_device, trials=trials, at_once=at_once, ranges=limits, on_epoch=on_epoch)
    rows = table(study)
    if finalists:
        recipe, earlier = replace(recipe, epochs=finalist_epochs), study
        study = open_study(storage, f"cifar10/{norm}/finalists/{finalist_epochs}", seed=seed)
        enqueue_best(study, earlier, finalists)
        total = -(-max(0, finalists - len(table(study))) // at_once) * finalist_epochs
        with _bar(console, f"{norm}, {finalists} finalists", total) as on_epoch:
            search(study, recipe, sets.on_device, trials=finalists, at_once=at_once, ranges=limits, on_epoch=on_epoch)
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
        f"--adam-eps {found.adam_eps:g} --weight-decay {found.weight_decay:g}"
    )


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _check_norm(norm: str) -> None:
    if norm not in NORMALISATIONS:
        raise typer.BadParameter(f"{norm!r} is not one of {', '.join(NORMALISATIONS)}.", param_hint="--norm")


def _ranges(texts: list[str]) -> dict[str, tuple[float, float]]:
    """`weight_decay=1e-5,1e-4` and the like."""
    found = {}
    for text in texts:
        name, _, ends = text.partition("=")
        try:
            low, high = (float(end) for end in ends.split(","))
        except ValueError:
            low, high = 1.0, 0.0
        if name not in RANGES or not 0 < low <= high:
            names = ", ".join(RANGES)
            raise typer.BadParameter(f"{text!r} is no range: write NAME=LOW,HIGH with {names}.", param_hint="--range")
        found[name] = (low, high)
    return found


def _sets(root: Path | None, on_sample: bool, device: torch.device) -> Sets:
    if on_sample:
        images = sample("validation")
        test = sample("test")
        return Sets(images.take(800), images.take(range(800, 1000)), test, device)
    return Sets(cifar10("train", root), cifar10("validation", root), cifar10("test", root), device)


@contextmanager
def _bar(console: Console, what: str, total: int) -> Iterator[Callable[[list[Epoch]], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, validation {task.fields[accuracy]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total, accuracy="–")

        def on_epoch(epochs: list[Epoch]) -> None:
            mean = sum(e.validation_accuracy for e in epochs) / len(epochs)
            progress.update(task, advance=1, accuracy=f"{mean:.1%}")

        yield on_epoch
