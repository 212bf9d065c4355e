"""Data with some of ImageNet's classes, and models with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from predbn.common import DataError

from .wnids import wnids

__all__ = ["ClassMask", "class_mask"]


@dataclass(frozen=True)
class ClassMask:
    """Which of a model's logits count: the one at `positions[k]` is that of label k.

    Softmax over the chosen logits alone is the published way to score ImageNet-A and ImageNet-R: probability that
    falls on a class which the data does not have is shared out among those that it has.
    """

    positions: tuple[int, ...]
    total: int

    def __len__(self) -> int:
        """How many classes the data has."""
        return len(self.positions)

    @property
    def everything(self) -> bool:
        """Whether the data has all classes of the model, in its order: there is nothing to leave out."""
        return self.positions == tuple(range(self.total))

    def restrict(self, logits: Tensor) -> Tensor:
        """Logits [..., total] → [..., K], those that count in the order of the labels."""
        if logits.shape[-1] != self.total:
            raise DataError(f"There are {logits.shape[-1]} logits, but the classes are {len(self)} of {self.total}.")
        return logits.index_select(-1, torch.tensor(self.positions, device=logits.device))

    def among_all(self, labels: Tensor) -> Tensor:
        """Labels of the data (0 to K − 1) as those of the model (0 to total − 1)."""
        return torch.tensor(self.positions, device=labels.device)[labels]


def class_mask(classes: Sequence[str]) -> ClassMask:
    """The mask of data whose classes are named by their WordNet numbers, among ImageNet's 1,000."""
    position = {wnid: number for number, wnid in enumerate(wnids())}
    unknown = [name for name in classes if name not in position]
    if unknown:
        raise DataError(
            f"{unknown[0]!r} is no class of ImageNet ({len(unknown)} of {len(classes)} are none): "
            "classes are named by their WordNet numbers, such as n01440764."
        )
    return ClassMask(tuple(position[name] for name in classes), len(position))
