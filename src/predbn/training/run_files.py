"""The files of a run: its checkpoint, and its log with one row per epoch.

A run has a path without a suffix, such as runs/resnet20-cifar10/batch/3, beside which its files are:
3.checkpoint and 3.csv during training, 3.safetensors (weights) and 3.json (card) when it is finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from predbn.common import TrainingError, read_torch_file, write_text, write_torch_file

_START_AGAIN = "delete it to start again"


def run_file(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a run atomically, with a checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_torch_file(path, state)


def read_checkpoint(path: Path, recipe: dict[str, Any], seed: int, device: torch.device) -> dict[str, Any]:
    """The state of a run, which must have that recipe and seed."""
    kind = "a checkpoint"
    state = read_torch_file(path, kind=kind, error=TrainingError, remedy=_START_AGAIN, device=device)
    if not isinstance(state, dict) or not isinstance(state.get("recipe"), dict):
        raise TrainingError(f"{path} cannot be read as {kind} (it has no recipe): {_START_AGAIN}.")
    check_same_recipe(path, {**state["recipe"], "seed": state.get("seed")}, {**recipe, "seed": seed})
    return state


def check_same_recipe(path: Path, stored: dict[str, Any], recipe: dict[str, Any]) -> None:
    """Raise a TrainingError if a stored recipe differs from the one that is to be trained."""
    for name, value in recipe.items():
        if not _is_same(stored.get(name), value):
            raise TrainingError(
                f"{path} belongs to a run with {name} {stored.get(name)}, not {value}: use the same {name}, or choose "
                "another folder."
            )


def _is_same(stored: Any, value: Any) -> bool:
    try:
        return bool(stored == value)
    except (RuntimeError, ValueError):  # a tensor instead of a number
        return False


def write_log(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write the log of a run, one row per epoch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, pd.DataFrame(rows).to_csv(index=False, float_format="%.6g", na_rep="nan"))
