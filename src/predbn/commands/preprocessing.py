"""The preprocessing of a user's own model, as options say it: --mean, --std and --size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from predbn.models import Preprocessing

__all__ = ["preprocessing_of"]


def preprocessing_of(mean: str | None, std: str | None, size: str | None) -> Preprocessing | None:
    """What --mean, --std and --size say together; pixels are scaled to 0 to 1 first, as torchvision does."""
    from predbn.models import Preprocessing

    if mean is None and std is None and size is None:
        return None
    if size is None:
        raise typer.BadParameter("say the size of the pictures too, as in --size 224.", param_hint="--size")
    height, _, width = size.partition("x")
    try:
        sides = int(height), int(width or height)
    except ValueError:
        raise typer.BadParameter(f"{size!r} is no size: write 224 or 224x192.", param_hint="--size") from None
    means, stds = _channels(mean or "0", "--mean"), _channels(std or "1", "--std")
    if max(means) > 1 or min(stds) <= 0:
        raise typer.BadParameter(
            "means lie between 0 and 1 and deviations above 0, as in --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225.",
            param_hint="--mean",
        )
    scaled = [(255 * a, 255 * b, 255 * c) for a, b, c in (means, stds)]
    return Preprocessing(sides, scaled[0], scaled[1])


def _channels(text: str, option: str) -> tuple[float, float, float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) == 1:
        values *= 3
    if len(values) != 3:
        raise typer.BadParameter(
            f"{text!r} is not one number or three, as in 0.5 or 0.485,0.456,0.406.", param_hint=option
        )
    return values[0], values[1], values[2]
