"""A network together with its preprocessing: uint8 images in, logits out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from predbn.common import ModelError
from predbn.data import ClassMask

from .preprocessing import Normalise, Preprocessing

P = TypeVar("P")


@dataclass(frozen=True)
class ModelInfo(Generic[P]):
    """What a model is: the reference it was loaded from, its number of classes, its preprocessing, and its card.

    The card is empty if the weights came without one, and so are the names of the classes if they are not known.
    """

    reference: str
    classes: int
    preprocessing: P
    card: dict[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()


class Classifier(nn.Module):
    """Takes uint8 images [N, 3, H, W] as a data set yields them and gives logits [N, classes].

    `network` is the bare network, which takes the output of `normalise`. `predbn.adapt` works on the classifier as on
    any module.
    """

    def __init__(self, network: nn.Module, info: ModelInfo[Preprocessing]) -> None:
        super().__init__()
        self.info = info
        self.normalise = Normalise(info.preprocessing)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(self.normalise(images))
        return logits

    def extra_repr(self) -> str:
        return self.info.reference


class RestrictedClassifier(Classifier):
    """The same network with the same layer names, but only the logits at `positions` are returned.

    The positions are a buffer, not made in `forward`: a copy from the host to the GPU cannot be part of a CUDA graph.
    """

    positions: Tensor

    def __init__(self, classifier: Classifier, mask: ClassMask) -> None:
        super().__init__(classifier.network, replace(classifier.info, classes=len(mask)))
        self.register_buffer("positions", torch.tensor(mask.positions), persistent=False)
        self.to(classifier.normalise.scale.device).train(classifier.training)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).index_select(1, self.positions)


def restrict(classifier: Classifier, mask: ClassMask) -> Classifier:
    """The classifier for data that has only the classes of a mask; the classifier itself if that is all of them."""
    if classifier.info.classes != mask.total:
        raise ModelError(
            f"{classifier.info.reference} has {classifier.info.classes} classes, but the data's {len(mask)} are "
            f"some of {mask.total}: choose a model with {mask.total}."
        )
    return classifier if mask.everything else RestrictedClassifier(classifier, mask)
