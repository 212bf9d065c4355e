"""How many examples were in a batch when the stored variances were measured.

Layers in training mode average the variance *within* batches. That of a batch of g examples misses the part of the
variance that lies between batches, Var[mean of an example]/g: in a channel where examples differ much, small batches
leave a variance that is visibly too small. If f is the variance of the whole data, v₂ the mean variance within batches
of two and s the stored one, then log f/s ≈ (2/g)·log f/v₂ in every channel. The slope over all channels gives g:

    b = Σ log(f/s)·log(f/v₂) / Σ log²(f/v₂),    g = 2/b.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_SLOPE = 1.6
"""A batch has more than one example; with less than 1.25 by this measure something else is the cause."""
TINY_SLOPE = 0.6
"""Batches of three and less, whose statistics are bad."""
LEAST_SLOPE = 0.4
"""Batches of five. Larger ones leave statistics that are hard to tell from good ones."""
LEAST_CORRELATION = 0.5
LEAST_DEFICIT = 0.01
"""How much smaller log v₂ is than log f on average, at least: where examples hardly differ, nothing can be told."""


class TrainingBatches(NamedTuple):
    """The slope b, and the correlation of the two logarithms over the channels."""

    slope: float
    correlation: float

    @property
    def size(self) -> float:
        """g, the number of examples in a batch."""
        return 2 / self.slope

    @property
    def are_tiny(self) -> bool:
        return self.are_small and self.slope >= TINY_SLOPE

    @property
    def are_small(self) -> bool:
        return LEAST_SLOPE <= self.slope <= LARGEST_SLOPE and self.correlation >= LEAST_CORRELATION


def training_batches(
    whole: Mapping[str, Tensor], in_pairs: Mapping[str, Tensor], stored: Mapping[str, Tensor], eps: float
) -> TrainingBatches | None:
    """Compare the variances f, v₂ and s of the layers in `stored`, which share this eps. None if they tell nothing."""
    layers = [layer for layer in stored if layer in in_pairs]
    if not layers:
        return None
    f, v, s = (torch.cat([values[layer].to(whole[layer]) for layer in layers]) for values in (whole, in_pairs, stored))
    y, x = ((f + eps) / (s + eps)).log(), ((f + eps) / (v + eps)).log()
    if float(x.mean()) < LEAST_DEFICIT or len(x) < 3:
        return None
    slope = float((x * y).sum() / (x * x).sum())
    return TrainingBatches(slope, float(torch.corrcoef(torch.stack([x, y]))[0, 1].nan_to_num()))
