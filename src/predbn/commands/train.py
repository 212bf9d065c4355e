"""`predbn train`: train the paper's networks. Options that change a recipe follow from its fields, see `fields.py`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from predbn.common import progress_bar

from .fields import given_recipe, recipe_command
from .help import App
from .interrupts import if_interrupted
from .option_sets import Output
from .options import MAX_SEED, Device, parse_device_option, usage_error
from .targets import check_folder

if TYPE_CHECKING:
    import torch

    from predbn.training import Cifar10Data, ProcessGroup

train_app = App("Train the paper's networks.")

Norm = Annotated[str, typer.Option(help="Normalisation: batch, instance, layer, group, fixup, last.")]
Seeds = Annotated[str, typer.Option(help="Seeds, such as 0-9 or 0,3,7: one network for each.")]
Out = Annotated[Path, typer.Option(help="Folder for weights, cards and logs.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted training.")]
Root = Annotated[Path | None, typer.Option(help="CIFAR-10 as downloaded; by default the cache of `predbn data`.")]
OnSample = Annotated[bool, typer.Option("--sample", help="Train on 800 embedded images, to try it out.")]
Checkpoints = Annotated[int, typer.Option(min=1, help="Epochs (CIFAR-10) or steps (others) between checkpoints.")]

_MAX_SEEDS, _MAX_WIDTH = 10_000, 100_000

_SCORES = {
    "accuracy": ("accuracy", ".2%"),
    "auc": ("AUC", ".4f"),
    "brier": ("Brier", ".4f"),
    "ece": ("ECE", ".4f"),
    "nll": ("NLL", ".4f"),
}
"""The printed name of a score, and the format of its value."""


@train_app.command("cifar10", cls=recipe_command("Cifar10Recipe", default="the recipe's"))
def train_cifar10_command(
    context: typer.Context,
    output: Output,
    norm: Norm = "batch",
    seeds: Seeds = "0",
    out: Out = Path("runs"),
    resume: Resume = False,
    recipe: Annotated[str, typer.Option(help="tuned (the paper's, Adam) or cosine (SGD).")] = "tuned",
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="Compile the network: its first step then takes half a minute."),
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, help="Networks trained side by side on the device.")] = 10,
    checkpoint_every: Checkpoints = 10,
    device: Device = "auto",
    root: Root = None,
    on_sample: OnSample = False,
) -> None:
    """Train ResNet-20 on CIFAR-10: 45,000 images, the last 5,000 held out for validation.

    Examples:

      predbn train cifar10 --norm batch --seeds 0-9
      predbn train cifar10 --norm group --seeds 0-2 --resume
      predbn train cifar10 --seeds 0-9 --recipe cosine --border reflect
      predbn train cifar10 --sample --epochs 2 --batch-size 100
    """
    check_folder(out)
    from predbn.training import find_cifar10_recipe, train_cifar10

    with usage_error():
        chosen = replace(find_cifar10_recipe(recipe, norm), **given_recipe(context))
    numbers = parse_seeds(seeds)
    data = open_cifar10(root, on_sample, parse_device_option(device))
    options: dict[str, Any] = {"side_by_side": at_once, "resume": resume, "checkpoint_every": checkpoint_every}
    train = partial(train_cifar10, chosen, numbers, data, out, compiled=compiled, **options)
    metrics = ("accuracy", "brier", "ece")
    _print_training(output, f"{norm}, seeds {seeds}", train, lambda seed: f"{norm}/{seed}", metrics, out)


@train_app.command("criteo", cls=recipe_command("CriteoRecipe"))
def train_criteo_command(
    context: typer.Context,
    output: Output,
    root: Annotated[
        Path | None, typer.Option(help="Folder that predbn data criteo wrote; by default the one in the cache.")
    ] = None,
    seeds: Seeds = "0",
    out: Out = Path("runs"),
    widths: Annotated[str, typer.Option(help="Widths of the ReLU layers.")] = "2572,1454,1596",
    max_buckets: Annotated[
        int | None, typer.Option(help="Max buckets per column; by default those of the reference benchmark.")
    ] = None,
    max_dimensions: Annotated[
        int | None, typer.Option(help="Max dimensions per column; by default those of the reference benchmark.")
    ] = None,
    resume: Resume = False,
    checkpoint_every: Checkpoints = 5000,
    device: Device = "auto",
) -> None:
    """Train the paper's Criteo network on prepared rows: the first 81 % for training, half of the rest for validation.

    Examples:

      predbn train criteo --seeds 0-9
      predbn train criteo --root late --epochs 30 --patience 3 --widths 64,32 \\
          --max-buckets 500
      predbn train criteo --seeds 0-9 --resume
    """
    check_folder(out)
    from predbn.data import criteo
    from predbn.models import CriteoSizes
    from predbn.training import CriteoData, CriteoRecipe, train_criteo

    with usage_error():
        sizes = CriteoSizes(widths=parse_widths(widths)).limited(buckets=max_buckets, dimensions=max_dimensions)
        recipe = CriteoRecipe(**given_recipe(context), sizes=sizes)
    numbers, on_device = parse_seeds(seeds), parse_device_option(device)
    data = CriteoData(criteo("train", root), criteo("validation", root), criteo("test", root))
    options: dict[str, Any] = {"device": on_device, "resume": resume, "checkpoint_every": checkpoint_every}
    train = partial(train_criteo, recipe, numbers, data, out, **options)
    metrics = ("auc", "brier", "ece", "nll")
    _print_training(output, f"seeds {seeds}", train, lambda seed: f"seed {seed}, {data.test.name}", metrics, out)


@train_app.command("imagenet", cls=recipe_command("ImageNetRecipe"))
def train_imagenet_command(
    context: typer.Context,
    output: Output,
    root: Annotated[Path, typer.Option(help="The folder that contains train and val.")],
    seed: Annotated[
        int, typer.Option(min=-MAX_SEED, max=MAX_SEED, help="Seed of the weights, the order and the augmentation.")
    ] = 0,
    out: Out = Path("runs"),
    workers: Annotated[
        int | None, typer.Option(help="Decoding processes per GPU; by default its share of the cores.")
    ] = None,
    resume: Resume = False,
    checkpoint_every: Checkpoints = 1000,
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
        recipe = ImageNetRecipe(**given_recipe(context))
    check_folder(out)
    with join_process_group(parse_device_option(device)) as group:
        output = output if group.is_first else Output(quiet=True)
        with progress_bar(output.console, "decoding val", unit="images") as progress:
            data = open_imagenet(root, recipe.preprocessing, subset=subset, progress=progress)
        with if_interrupted(_kept_by_training(out)), progress_bar(output.console, "training", unit="steps") as progress:
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


def parse_widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of widths: write 64,32.", param_hint="--widths") from None
    if max(widths) > _MAX_WIDTH:
        raise typer.BadParameter(f"a width must be at most {_MAX_WIDTH:,}, got {max(widths):,}.", param_hint="--widths")
    return widths


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


def _cores_per_process(group: ProcessGroup) -> int:
    """The cores of this machine divided by the number of processes on it."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", str(group.size)))
    return max(1, (os.cpu_count() or 1) // processes)


def _kept_by_training(out: Path) -> str:
    return f"the networks and checkpoints written so far are kept in {out}; add --resume to continue from them."


def _print_training(
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

    with if_interrupted(_kept_by_training(out)), progress_bar(output.console, what, unit="steps") as progress:
        train(progress=progress, on_network=print_scores)
    if len(tests) > 1:
        mean = _format_score(metrics[0], sum(test[metrics[0]] for test in tests) / len(tests))
        output.say(f"mean test {mean} over {len(tests)} seeds")
    output.result(f"Weights, cards and logs are in {out}.", out=out, test=tests)


def _format_score(metric: str, value: float) -> str:
    label, form = _SCORES[metric]
    return f"{label} {value:{form}}"
