"""`predbn tune cifar10`."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from predbn.common import atomic_write, progress_bar

from .interrupts import if_interrupted
from .option_sets import Output
from .options import MAX_SEED, Device, parse_device_option, refuse_without, usage_error
from .targets import check_file, check_folder
from .training_options import Norm, OnSample, Root, open_cifar10

if TYPE_CHECKING:
    from predbn.training import Cifar10Recipe


def tune_cifar10_command(
    context: typer.Context,
    output: Output,
    norm: Norm = "batch",
    trials: Annotated[int, typer.Option(min=1, help="Trials that the study has in the end.")] = 30,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of a trial; the schedule is shortened with it.")] = 100,
    finalists: Annotated[
        int, typer.Option(min=0, help="How many of the best trials to repeat with more epochs before choosing.")
    ] = 0,
    finalist_epochs: Annotated[int, typer.Option(min=1, help="Epochs of a finalist.")] = 40,
    folder: Annotated[Path | None, typer.Option(help="Folder of the trials; by default search/<norm>.")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file for the table of trials.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the random points.")] = 0,
    decoupled: Annotated[bool, typer.Option("--decoupled/--l2", help="Kind of weight decay.")] = False,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=LOW,HIGH", help="A range other than the paper's."),
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Trials trained side by side on the device.")] = 10,
    device: Device = "auto",
    root: Root = None,
    on_sample: OnSample = False,
) -> None:
    """Random search in the paper's ranges, by accuracy on the 5,000 validation images.

    The same command continues an interrupted search; with more --trials it extends it.

    Examples:

      predbn tune cifar10 --norm batch --trials 32 --epochs 16
      predbn tune cifar10 --norm layer --trials 10 --out layer.csv
    """
    from predbn.training import Cifar10Recipe, draw_points, recipe_at, run_search

    limits = parse_ranges(ranges or [])
    study = folder or Path("search", norm)
    check_folder(study)
    if out is not None:
        check_file(out)
    if not finalists:
        refuse_without(context, "--finalists", ["finalist_epochs"])
    with usage_error("--norm"):
        batch_size: dict[str, Any] = {"batch_size": 100} if on_sample else {}
        recipe = Cifar10Recipe(norm=norm, epochs=epochs, decoupled=decoupled, **batch_size)
    data = open_cifar10(root, on_sample, parse_device_option(device))

    def search(name: str, what: str, recipe: Cifar10Recipe, points: dict[int, Any]) -> list[dict[str, Any]]:
        kept = f"the trials that are finished are kept in {study}; run the same command again to continue."
        with (
            if_interrupted(kept),
            progress_bar(output.console, f"{norm}, {len(points)} {what}", unit="steps") as progress,
        ):
            return run_search(recipe, points, data, study / name, side_by_side=at_once, progress=progress)

    kind = "decoupled" if decoupled else "l2"
    points = draw_points(trials, seed=seed, decoupled=decoupled, ranges=limits)
    rows = search(f"{kind}-{epochs}", "trials", recipe, points)
    if finalists:
        recipe = replace(recipe, epochs=finalist_epochs)
        best_points = {row["trial"]: points[row["trial"]] for row in rows[:finalists]}
        rows = search(f"{kind}-finalists-{finalist_epochs}", "finalists", recipe, best_points) + rows
    if out is not None:
        _write_table(out, rows)
    for row in rows[:5]:
        output.say(
            f"trial {row['trial']:>3}: validation accuracy {row['validation_accuracy']:.2%}, learning rate "
            f"{row['learning_rate']:.3g}, 1 − momentum {row['one_minus_momentum']:.3g}, eps {row['adam_eps']:.2g}, "
            f"weight decay {row['weight_decay']:.3g}"
        )
    best = recipe_at(recipe, rows[0])
    output.result(
        f"{len(rows)} trials; best: --learning-rate {best.learning_rate:g} --momentum {best.momentum:g} "
        f"--adam-eps {best.adam_eps:g} --weight-decay {best.weight_decay:g} {'--decoupled' if decoupled else '--l2'}",
        trials=rows,
    )


def parse_ranges(texts: list[str]) -> dict[str, tuple[float, float]]:
    """Search ranges such as `weight_decay=1e-5,1e-4`."""
    from predbn.training import SEARCH_RANGES

    ranges = {}
    for text in texts:
        name, _, ends = text.partition("=")
        try:
            low, high = (float(end) for end in ends.split(","))
        except ValueError:
            low, high = 1.0, 0.0
        if name not in SEARCH_RANGES or not 0 < low <= high < float("inf"):
            names = ", ".join(SEARCH_RANGES)
            raise typer.BadParameter(
                f"{text!r} is not a range: write NAME=LOW,HIGH with one of {names}.", param_hint="--range"
            )
        ranges[name] = (low, high)
    return ranges


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
