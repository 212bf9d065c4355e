"""The trained networks that come with the package: fp16 weights, and a card for each.

`zoo:resnet20-cifar10/batch/3` is the network with batch normalisation trained with seed 3.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import Tensor

from predbn.common import ModelError

from .weights import read

__all__ = ["ZOO", "card", "matching", "names", "weights"]

ZOO = Path(__file__).parent / "zoo_weights"


def names() -> list[str]:
    """All networks of the zoo, such as `resnet20-cifar10/batch/3`."""
    found = (path.relative_to(ZOO).with_suffix("") for path in ZOO.glob("*/*/*.safetensors"))
    return sorted((path.as_posix() for path in found), key=_in_order)


def matching(pattern: str) -> list[str]:
    """The networks whose name fits, where * stands for anything; a ModelError where none does."""
    there = names()
    found = [name for name in there if fnmatchcase(name, pattern)]
    if not found:
        families = dict.fromkeys(f"{name.rpartition('/')[0]}/*" for name in there)
        raise ModelError(f"The zoo has no {pattern!r}: it has {', '.join(families) or 'no network at all'}.")
    return found


def weights(name: str) -> dict[str, Tensor]:
    """The tensors of a network of the zoo."""
    return read(ZOO / f"{_one(name)}.safetensors")[0]


def card(name: str) -> dict[str, Any]:
    """Its card: recipe, seed, data sums, commit, and scores on the clean test images."""
    path = ZOO / f"{_one(name)}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"The card of zoo:{name} cannot be read ({error}): reinstall predbn.") from None
    return found


def _one(name: str) -> str:
    found = matching(name)
    if name not in found:
        raise ModelError(f"zoo:{name} stands for {len(found)} networks: name one, such as zoo:{found[0]}.")
    return name


def _in_order(name: str) -> tuple[str, int, str]:
    family, _, last = name.rpartition("/")
    return family, int(last) if last.isdigit() else -1, last
