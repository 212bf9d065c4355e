"""What the training commands share: options, the data of CIFAR-10, and the output of a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from predbn.common import progress_bar

from .interrupts import if_interrupted
from .option_sets import Output
from .options import MAX_SEED

if TYPE_CHECKING:
    import torch
    from _typeshed import DataclassInstance

    from predbn.training import Cifar10Data

Norm = Annotated[str, typer.Option(help="Normalisation: batch, instance, layer, group, fixup, last.")]
Seeds = Annotated[str, typer.Option(help="Seeds, such as 0-9 or 0,3,7: one network for each.")]
Out = Annotated[Path, typer.Option(help="Folder for weights, cards and logs.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted training.")]
Root = Annotated[Path | None, typer.Option(help="CIFAR-10 as downloaded; by default the cache of `predbn data`.")]
OnSample = Annotated[bool, typer.Option("--sample", help="Train on 800 embedded images, to try it out.")]

_MAX_SEEDS = 10_000

_SCORES = {
    "accuracy": ("accuracy", ".2%"),
    "auc": ("AUC", ".4f"),
    "brier": ("Brier", ".4f"),
    "ece": ("ECE", ".4f"),
    "nll": ("NLL", ".4f"),
}
"""The printed name of a score, and the format of its value."""


def recipe_fields(context: typer.Context, recipe: type[DataclassInstance]) -> dict[str, Any]:
    """The values of the options that are named as fields of a recipe, without those that are None."""
    names = [field.name for field in fields(recipe)]
    return {name: context.params[name] for name in names if context.params.get(name) is not None}


def parse_seeds(text: str) -> list[int]:
    """`0-9`, `3` or `0,2,5-7` as sorted numbers without duplicates."""
    seeds: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            if numbers and (numbers[0] < 0 or numbers[-1] > MAX_SEED or numbers[-1] - numbers[0] >= _MAX_SEEDS):
                raise typer.BadParameter(
                    f"{part!r} is out of range: seeds are 0 to {MAX_SEED}, at most {_MAX_SEEDS} at a time.",
                    param_hint="--seeds",
                )
            seeds.update(numbers)
    except ValueError:
        seeds = set()
    if not seeds:
        raise typer.BadParameter(f"{text!r} is not a list of seeds: write 0-9 or 0,3,7.", param_hint="--seeds")
    return sorted(seeds)


def open_cifar10(root: Path | None, on_sample: bool, device: torch.device) -> Cifar10Data:
    """CIFAR-10 split for training; or its embedded sample, 800 images to train on and 200 to validate."""
    from predbn.data import cifar10, sample
    from predbn.training import Cifar10Data

    if on_sample:
        if root is not None:
            raise typer.BadParameter("--sample and --root cannot be combined: drop one.", param_hint="--root")
        images = sample("validation")
        return Cifar10Data(images.take(800), images.take(range(800, 1000)), sample("test"), device)
    return Cifar10Data(cifar10("train", root), cifar10("validation", root), cifar10("test", root), device)


def kept_by_training(out: Path) -> str:
    return f"the networks and checkpoints written so far are kept in {out}; add --resume to continue from them."


def print_training(
    output: Output,
    what: str,
    train: Callable[..., object],
    name_of: Callable[[int], str],
    metrics: Sequence[str],
    out: Path,
) -> None:
    """Call `train` with a progress bar; print the test scores of each network, their mean, and where the files are.

    `name_of` gives the name of the network with a seed; the mean is that of the first metric.
    """
    tests: list[dict[str, Any]] = []

    def print_scores(seed: int, card: dict[str, Any]) -> None:
        tests.append({"network": name_of(seed), **card["test"]})
        scores = ", ".join(_format_score(metric, card["test"][metric]) for metric in metrics)
        epoch = f" (epoch {card['best_epoch']})" if "best_epoch" in card else ""
        output.say(f"{name_of(seed)}: test {scores}{epoch}")

    with if_interrupted(kept_by_training(out)), progress_bar(output.console, what, unit="steps") as progress:
        train(progress=progress, on_network=print_scores)
    if len(tests) > 1:
        mean = _format_score(metrics[0], sum(test[metrics[0]] for test in tests) / len(tests))
        output.say(f"mean test {mean} over {len(tests)} seeds")
    output.result(f"Weights, cards and logs are in {out}.", out=out, test=tests)


def _format_score(metric: str, value: float) -> str:
    label, form = _SCORES[metric]
    return f"{label} {value:{form}}"
