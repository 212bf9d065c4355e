"""A model with more classes than the data: only the logits of the data's classes count."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from predbn.common import ModelError
from predbn.data import ClassMask

from .classifier import Classifier

__all__ = ["Restricted", "restrict"]


class Restricted(Classifier):
    """The same network with the same names of layers, of whose logits those at `positions` come out."""

    positions: Tensor

    def __init__(self, classifier: Classifier, mask: ClassMask) -> None:
        super().__init__(classifier.network, replace(classifier.description, classes=len(mask)))
        self.register_buffer("positions", torch.tensor(mask.positions), persistent=False)
        self.to(classifier.normalise.scale.device).train(classifier.training)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).index_select(1, self.positions)


def restrict(classifier: Classifier, mask: ClassMask) -> Classifier:
    """The classifier for data with these classes; itself where the data has all of its classes."""
    if classifier.description.classes != mask.total:
        raise ModelError(
            f"{classifier.description.reference} has {classifier.description.classes} classes, but the data's "
            f"{len(mask)} are some of {mask.total}: choose a model with {mask.total}."
        )
    return classifier if mask.everything else Restricted(classifier, mask)
