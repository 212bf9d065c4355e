"""A network together with what one must know to use it: pictures in, logits out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from .preprocessing import Normalise, Preprocessing

__all__ = ["Classifier", "Description"]


@dataclass(frozen=True)
class Description:
    """What a model is: the reference it came from, its classes, its preprocessing, and its card where it has one."""

    reference: str
    classes: int
    preprocessing: Preprocessing
    card: dict[str, Any] = field(default_factory=dict)


class Classifier(nn.Module):
    """Takes uint8 pictures [N, 3, H, W] as they come from a data set and gives logits [N, classes].

    `network` is the bare network, which takes what `normalise` makes of the pictures. `predbn.adapt` works on the
    classifier as on any module.
    """

    def __init__(self, network: nn.Module, description: Description) -> None:
        super().__init__()
        self.description = description
        self.normalise = Normalise(description.preprocessing)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(self.normalise(images))
        return logits

    def extra_repr(self) -> str:
        return self.description.reference
