"""Options that the training commands share, and what their texts mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from predbn.common import DeviceError, PredbnError, parse_device
from predbn.data import cifar10, sample
from predbn.models import NORMALISATIONS
from predbn.training import SEARCH_RANGES, Cifar10Data


def _check_norm(norm: str) -> str:
    if norm not in NORMALISATIONS:
        raise typer.BadParameter(f"{norm!r} is not one of {', '.join(NORMALISATIONS)}.")
    return norm


Norm = Annotated[str, typer.Option(callback=_check_norm, help=f"Normalisation: {', '.join(NORMALISATIONS)}.")]
Seeds = Annotated[str, typer.Option(help="Seeds, such as 0-9 or 0,3,7: one network for each.")]
Out = Annotated[Path, typer.Option(help="Folder for weights, cards and logs.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted training.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs beside the CSV.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto: the GPU if there is one.")]
Root = Annotated[Path | None, typer.Option(help="CIFAR-10 as downloaded; by default the cache of `predbn data`.")]
OnSample = Annotated[bool, typer.Option("--sample", help="Train on 800 embedded images, to try it out.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


def open_console(quiet: bool) -> Console:
    """The console of a training command."""
    return Console(quiet=quiet, highlight=False, soft_wrap=True)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report an error in the numbers of a recipe as a wrong argument, with exit code 2."""
    try:
        yield
    except PredbnError as error:
        raise typer.BadParameter(str(error)) from None


def parse_device_option(name: str) -> torch.device:
    """The device of --device; a device that does not exist is a usage error."""
    try:
        return parse_device(name)
    except DeviceError as error:
        raise typer.BadParameter(str(error), param_hint="--device") from None


def parse_seeds(text: str) -> list[int]:
    """`0-9`, `3` or `0,2,5-7` as sorted numbers without duplicates."""
    seeds: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds.update(range(int(first), int(last or first) + 1))
    except ValueError:
        seeds = set()
    if not seeds:
        raise typer.BadParameter(f"{text!r} is not a list of seeds: write 0-9 or 0,3,7.", param_hint="--seeds")
    return sorted(seeds)


def parse_ranges(texts: list[str]) -> dict[str, tuple[float, float]]:
    """Search ranges such as `weight_decay=1e-5,1e-4`."""
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


def open_cifar10(root: Path | None, on_sample: bool, device: torch.device) -> Cifar10Data:
    """CIFAR-10 split for training; or its embedded sample, 800 images to train on and 200 to validate."""
    if on_sample:
        images = sample("validation")
        return Cifar10Data(images.take(800), images.take(range(800, 1000)), sample("test"), device)
    return Cifar10Data(cifar10("train", root), cifar10("validation", root), cifar10("test", root), device)
