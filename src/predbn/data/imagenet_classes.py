"""The 1,000 classes of ImageNet, and data that has only some of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from predbn.common import DataError


@lru_cache(maxsize=1)
def wnids() -> tuple[str, ...]:
    """The WordNet IDs of the classes, sorted, which is the order of every model's logits.

    `n01440764` (tench) is the first, `n15075141` (toilet tissue) the last.
    """
    return tuple((files("predbn.data") / "imagenet_wnids.txt").read_text("ascii").split())


def is_wnid(name: str) -> bool:
    """Whether a name has the form of a WordNet ID, of ImageNet's classes or others."""
    return re.fullmatch(r"n\d{8}", name) is not None


@dataclass(frozen=True)
class ClassMask:
    """Which of a model's logits are used: label k of the data is the logit at `positions[k]`.

    ImageNet-A and ImageNet-R are scored with a softmax over the chosen logits only, as published: the probability of
    classes that the data does not have is redistributed among those that it has.
    """

    positions: tuple[int, ...]
    total: int

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def everything(self) -> bool:
        """Whether the data has all classes of the model in the same order, so that the mask changes nothing."""
        return self.positions == tuple(range(self.total))


def class_mask(classes: Sequence[str]) -> ClassMask:
    """The mask for data with some of ImageNet's 1,000 classes, given by their WordNet IDs."""
    position = {wnid: number for number, wnid in enumerate(wnids())}
    unknown = [name for name in classes if name not in position]
    if unknown:
        raise DataError(
            f"{unknown[0]!r} is not a class of ImageNet ({len(unknown)} of {len(classes)} are not): "
            "classes are named by their WordNet IDs, such as n01440764."
        )
    return ClassMask(tuple(position[name] for name in classes), len(position))
