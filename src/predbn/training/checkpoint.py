"""Checkpoints: written whole or not at all, refused when they belong to another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from predbn.common import TrainingError, finish, part_of

__all__ = ["checkpoint_of", "read", "refuse_another", "write"]


def checkpoint_of(place: Path) -> Path:
    """The checkpoint of the run whose files go to that place."""
    return place.with_name(f"{place.name}.checkpoint")


def write(path: Path, state: dict[str, Any]) -> None:
    """Put the state of a run there; a reader finds the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with part_of(path).open("wb") as file:
        torch.save(state, file)
    finish(path)


def read(path: Path, recipe: dict[str, Any], seed: int, device: torch.device) -> dict[str, Any]:
    """The state of a run, which must be of that recipe and seed."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        found = {**state["recipe"], "seed": state["seed"]}
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise TrainingError(
            f"{path} cannot be read as a checkpoint ({reason}): delete it to start that run anew."
        ) from None
    refuse_another(path, found, {**recipe, "seed": seed})
    return state


def refuse_another(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A TrainingError where what was found is of a run with other numbers."""
    for name, value in wanted.items():
        if found.get(name) != value:
            raise TrainingError(
                f"{path} is of a run with {name} {found.get(name)}, not {value}: ask for the same, or choose another "
                "folder."
            )
