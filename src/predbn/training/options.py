"""What the commands of this room are told in the same words."""

from __future__ import annotations

import torch
import typer

__all__ = ["device_of", "seeds_of"]


def seeds_of(text: str) -> list[int]:
    """`0-9`, `3` or `0,2,5-7` as numbers, each once."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            numbers.extend(range(int(first), int(last or first) + 1))
    except ValueError:
        numbers = []
    if not numbers:
        raise typer.BadParameter(f"{text!r} is no list of seeds: write 0-9 or 0,3,7.", param_hint="--seeds")
    return sorted(set(numbers))


def device_of(name: str) -> torch.device:
    """`cuda`, `cpu`, or `auto` for the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter(
            "there is no GPU that PyTorch can use here: leave it out, or say cpu.", param_hint="--device"
        )
    try:
        return torch.device(name)
    except RuntimeError:
        raise typer.BadParameter(f"{name!r} is not cuda, cpu or auto.", param_hint="--device") from None
