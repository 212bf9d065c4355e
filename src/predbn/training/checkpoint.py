"""Checkpoints: written whole or not at all, refused when they belong to another run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from .errors import TrainingError

__all__ = ["read", "write"]


def write(path: Path, state: dict[str, Any]) -> None:
    """Put the state of a run there; a reader finds the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path, recipe: dict[str, Any], seed: int, device: torch.device) -> dict[str, Any]:
    """The state of a run, which must be of that recipe and seed."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(
            f"{path} cannot be read as a checkpoint ({reason}): delete it to start that run anew."
        ) from None
    for name, wanted in {**recipe, "seed": seed}.items():
        found = state["seed"] if name == "seed" else state["recipe"].get(name)
        if found != wanted:
            raise TrainingError(
                f"{path} is of a run with {name} {found}, not {wanted}: ask for the same, or choose another folder."
            )
    return state
