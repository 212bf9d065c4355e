"""Options that the training commands share, and what their texts mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from predbn.training import Cifar10Data


def _check_norm(norm: str) -> str:
    from predbn.models import NORMALISATIONS

    if norm not in NORMALISATIONS:
        raise typer.BadParameter(f"{norm!r} is not one of {', '.join(NORMALISATIONS)}.")
    return norm


Norm = Annotated[
    str, typer.Option(callback=_check_norm, help="Normalisation: batch, instance, layer, group, fixup, last.")
]
Seeds = Annotated[str, typer.Option(help="Seeds, such as 0-9 or 0,3,7: one network for each.")]
Out = Annotated[Path, typer.Option(help="Folder for weights, cards and logs.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted training.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs beside the CSV.")]
Root = Annotated[Path | None, typer.Option(help="CIFAR-10 as downloaded; by default the cache of `predbn data`.")]
OnSample = Annotated[bool, typer.Option("--sample", help="Train on 800 embedded images, to try it out.")]


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


def open_cifar10(root: Path | None, on_sample: bool, device: torch.device) -> Cifar10Data:
    """CIFAR-10 split for training; or its embedded sample, 800 images to train on and 200 to validate."""
    from predbn.data import cifar10, sample
    from predbn.training import Cifar10Data

    if on_sample:
        images = sample("validation")
        return Cifar10Data(images.take(800), images.take(range(800, 1000)), sample("test"), device)
    return Cifar10Data(cifar10("train", root), cifar10("validation", root), cifar10("test", root), device)
