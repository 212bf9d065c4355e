"""`predbn tune`: a random search for the numbers of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from predbn.common import progress_bar, write_text

from .help import App
from .interrupts import if_interrupted
from .option_sets import Output
from .options import MAX_SEED, Device, parse_device_option, parse_pairs, usage_error
from .targets import check_file, check_folder
from .train import AtOnce, Norm, OnSample, Root, open_cifar10

tune_app = App("Search for the numbers of a training recipe.")


@tune_app.command("cifar10")
def tune_cifar10_command(
    output: Output,
    norm: Norm = "batch",
    trials: Annotated[int, typer.Option(min=1, help="Trials that the study has in the end.")] = 30,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of a trial; the schedule is shortened with it.")] = 100,
    decoupled: Annotated[bool, typer.Option("--decoupled", help="Decoupled weight decay in place of L2.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Folder of the trials; by default search/<norm>.")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file for the table of trials.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the random points.")] = 0,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=LOW,HIGH", help="A range other than the paper's."),
    ] = None,
    at_once: AtOnce = 10,
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
    import pandas as pd

    from predbn.training import Cifar10Recipe, draw_points, recipe_at, run_search

    limits = parse_ranges(ranges or [])
    kind = "decoupled" if decoupled else "l2"
    study = (folder or Path("search", norm)) / f"{kind}-{epochs}"
    check_folder(study)
    if out is not None:
        check_file(out)
    with usage_error("--norm"):
        batch_size: dict[str, Any] = {"batch_size": 100} if on_sample else {}
        recipe = Cifar10Recipe(norm=norm, epochs=epochs, decoupled=decoupled, **batch_size)
    data = open_cifar10(root, on_sample, parse_device_option(device))
    points = draw_points(trials, seed=seed, decoupled=decoupled, ranges=limits)
    kept = f"the trials that are finished are kept in {study}; run the same command again to continue."
    with if_interrupted(kept), progress_bar(output.console, f"{norm}, {trials} trials", unit="steps") as progress:
        rows = run_search(recipe, points, data, study, side_by_side=at_once, progress=progress)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, pd.DataFrame(rows).to_csv(index=False))
    for row in rows[:5]:
        output.say(
            f"trial {row['trial']:>3}: validation accuracy {row['validation_accuracy']:.2%}, learning rate "
            f"{row['learning_rate']:.3g}, 1 − momentum {row['one_minus_momentum']:.3g}, eps {row['adam_eps']:.2g}, "
            f"weight decay {row['weight_decay']:.3g}"
        )
    best = recipe_at(recipe, rows[0])
    output.result(
        f"{len(rows)} trials; best: --learning-rate {best.learning_rate:g} --momentum {best.momentum:g} "
        f"--adam-eps {best.adam_eps:g} --weight-decay {best.weight_decay:g}{' --decoupled' if decoupled else ''}",
        trials=rows,
    )


def parse_ranges(texts: list[str]) -> dict[str, tuple[float, float]]:
    """Search ranges such as `weight_decay=1e-5,1e-4`."""
    from predbn.training import SEARCH_RANGES

    ranges = {}
    for name, ends in parse_pairs(texts, "--range", "learning_rate=0.001,0.03"):
        try:
            low, high = (float(end) for end in ends.split(","))
        except ValueError:
            low, high = 1.0, 0.0
        if name not in SEARCH_RANGES or not 0 < low <= high < float("inf"):
            names = ", ".join(SEARCH_RANGES)
            raise typer.BadParameter(
                f"{name}={ends} is not a range: write NAME=LOW,HIGH with one of {names}.", param_hint="--range"
            )
        ranges[name] = (low, high)
    return ranges
