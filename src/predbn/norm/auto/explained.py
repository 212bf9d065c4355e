"""What chance and the classes of a batch explain of its difference from clean data (step 0 of `auto`)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..statistics import Statistics
from ..tracing import is_readable
from .calibration import Calibration
from .composition import Composition

CLASS_FACTOR = 2.0
"""Differences between classes are subtracted twice if a batch may be of one class: subtracted once, they would still
move every layer a little."""


class Sampling(NamedTuple):
    """How much of a difference from clean data chance explains: per_example/n + constant + of_classes.

    Without classes that is 1/n + 1/M, for n examples and a calibration on M.
    """

    per_example: float
    constant: float
    of_classes: Tensor | float = 0.0

    def of(self, n: Tensor | float) -> Tensor | float:
        return self.per_example / n + self.constant + self.of_classes


def without_classes(
    batch: Statistics, clean: Calibration, composition: Composition, eps: float
) -> tuple[Statistics, Sampling]:
    """Step 0 of `auto`: the batch without what its classes explain, and what takes the place of 1/n + 1/M."""
    within, between = 1 - clean.between, clean.between
    assert clean.class_sizes is not None
    if composition.shares is None:
        return batch, Sampling(within, within / clean.size + CLASS_FACTOR * between)
    shares = composition.shares.to(batch.mean)
    unexplained: Tensor | float = 0.0
    if clean.between_groups is not None:  # classes of one group differ too, which matters if few of them are there
        unexplained = CLASS_FACTOR * (between - clean.between_groups) * (shares * shares).sum(-1, keepdim=True)
        between = clean.between_groups
    shares = clean.group_shares(shares)
    sampling_of_classes = (shares * shares / clean.class_sizes.clamp(min=1)).sum(-1, keepdim=True)
    doubt = composition.doubt.to(batch.mean) if isinstance(composition.doubt, Tensor) else composition.doubt
    unevenness = (shares * shares).sum(-1, keepdim=True)
    of_classes = (1 - between) * sampling_of_classes + unexplained + CLASS_FACTOR * between * unevenness * doubt
    batch = clean.with_source_classes(batch, shares, eps)
    is_number = shares.dim() == 1 and is_readable(of_classes)
    return batch, Sampling(within, 0.0, of_classes.item() if is_number else of_classes)
