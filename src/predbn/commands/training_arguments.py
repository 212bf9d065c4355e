"""What `predbn train` and `predbn tune` have in common: their options, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from predbn.data import cifar10, sample
from predbn.models import NORMALISATIONS
from predbn.training import RANGES, Sets

__all__ = ["Device", "Norm", "OnSample", "Quiet", "Root", "device_of", "ranges_of", "seeds_of", "sets_of"]


def _known(norm: str) -> str:
    if norm not in NORMALISATIONS:
        raise typer.BadParameter(f"{norm!r} is not one of {', '.join(NORMALISATIONS)}.")
    return norm


Norm = Annotated[str, typer.Option(callback=_known, help=f"Normalisation: {', '.join(NORMALISATIONS)}.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 and so on, or auto: the GPU where there is one.")]
Root = Annotated[Path | None, typer.Option(help="CIFAR-10 as downloaded; the cache of `predbn data` unless given.")]
OnSample = Annotated[bool, typer.Option("--sample", help="Train on 800 embedded images: to try it out.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


def seeds_of(text: str) -> list[int]:
    """`0-9`, `3` or `0,2,5-7` as numbers, each once."""
    numbers: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
    except ValueError:
        numbers = set()
    if not numbers:
        raise typer.BadParameter(f"{text!r} is no list of seeds: write 0-9 or 0,3,7.", param_hint="--seeds")
    return sorted(numbers)


def ranges_of(texts: list[str]) -> dict[str, tuple[float, float]]:
    """`weight_decay=1e-5,1e-4` and the like."""
    found = {}
    for text in texts:
        name, _, ends = text.partition("=")
        try:
            low, high = (float(end) for end in ends.split(","))
        except ValueError:
            low, high = 1.0, 0.0
        if name not in RANGES or not 0 < low <= high < float("inf"):
            names = ", ".join(RANGES)
            raise typer.BadParameter(f"{text!r} is no range: write NAME=LOW,HIGH with {names}.", param_hint="--range")
        found[name] = (low, high)
    return found


def device_of(name: str) -> torch.device:
    """The device of that name, where it is there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise typer.BadParameter(f"{name!r} is not cpu, cuda, cuda:NUMBER or auto.", param_hint="--device")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise typer.BadParameter(
            f"there is no {name} that PyTorch can use here: leave it out, or say cpu.", param_hint="--device"
        )
    return torch.device(name)


def sets_of(root: Path | None, on_sample: bool, device: torch.device) -> Sets:
    """CIFAR-10 split for training, or the embedded sample of it: 800 images to train on and 200 to validate."""
    if on_sample:
        images = sample("validation")
        return Sets(images.take(800), images.take(range(800, 1000)), sample("test"), device)
    return Sets(cifar10("train", root), cifar10("validation", root), cifar10("test", root), device)
