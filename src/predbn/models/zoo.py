"""The trained networks that come with the package: fp16 weights and a card for each.

`zoo:resnet20-cifar10/batch/3` is the network with batch normalisation trained with seed 3. Its card, a JSON file with a
checksum of its own, has the SHA-256 of the weights.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import Tensor

from predbn.common import ModelError, read_json

from .weights import read_weights

ZOO = Path(__file__).parent / "zoo_weights"


def names() -> list[str]:
    paths = (path.relative_to(ZOO).with_suffix("") for path in ZOO.glob("*/*/*.safetensors"))
    return sorted((path.as_posix() for path in paths), key=_family_and_seed)


def matching(pattern: str) -> list[str]:
    """The networks whose names match, `*` standing for anything; a ModelError if there are none."""
    available = names()
    matches = [name for name in available if fnmatchcase(name, pattern)]
    if not matches:
        families = dict.fromkeys(f"{name.rpartition('/')[0]}/*" for name in available)
        raise ModelError(f"The zoo has no {pattern!r}: it has {', '.join(families) or 'no networks at all'}.")
    return matches


def weights(name: str) -> dict[str, Tensor]:
    """The state dict of a network, which is that of its card."""
    path = ZOO / f"{_check_single(name)}.safetensors"
    return read_weights(path, sha256=card(name).get("weights_sha256"))[0]


def card(name: str) -> dict[str, Any]:
    """The card of a network: recipe, seed, checksums of weights and data, commit, scores on the clean test images."""
    path = ZOO / f"{_check_single(name)}.json"
    try:
        return read_json(path, error=ModelError, remedy="reinstall predbn")
    except FileNotFoundError:
        raise ModelError(f"The card of zoo:{name} cannot be read ({path} is missing): reinstall predbn.") from None


def _check_single(name: str) -> str:
    matches = matching(name)
    if name not in matches:
        raise ModelError(f"zoo:{name} stands for {len(matches)} networks: name one, such as zoo:{matches[0]}.")
    return name


def _family_and_seed(name: str) -> tuple[str, int, str]:
    """Sorts seeds as numbers: 2 before 10."""
    family, _, seed = name.rpartition("/")
    return family, int(seed) if seed.isdigit() else -1, seed
