"""The trained networks that come with the package: fp16 weights, and a card for each.

`zoo:resnet20-cifar10/batch/3` is the network with batch normalisation trained with seed 3.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .errors import ModelError
from .weights import read

__all__ = ["ZOO", "card", "matching", "names", "weights"]

ZOO = Path(__file__).parent / "zoo_weights"


def names() -> list[str]:
    """All networks of the zoo, such as `resnet20-cifar10/batch/3`."""
    found = (path.relative_to(ZOO).with_suffix("") for path in ZOO.glob("*/*/*.safetensors"))
    return sorted((path.as_posix() for path in found), key=_in_order)


def matching(pattern: str) -> list[str]:
    """The networks whose name fits, where * stands for anything; a ModelError where none does."""
    found = [name for name in names() if fnmatchcase(name, pattern)]
    if not found:
        families = sorted({name.rsplit("/", 1)[0] for name in names()})
        raise ModelError(f"The zoo has no {pattern!r}: it has {', '.join(f'{family}/*' for family in families)}.")
    return found


def weights(name: str) -> dict[str, Any]:
    """The tensors of a network of the zoo."""
    return read(ZOO / f"{matching(name)[0]}.safetensors")[0]


def card(name: str) -> dict[str, Any]:
    """Its card: recipe, seed, data sums, commit, and scores on the clean test images."""
    found: dict[str, Any] = json.loads((ZOO / f"{matching(name)[0]}.json").read_text())
    return found


def _in_order(name: str) -> tuple[str, int, str]:
    family, _, last = name.rpartition("/")
    return family, int(last) if last.isdigit() else -1, last
