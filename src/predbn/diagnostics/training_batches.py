"""Estimate how many examples were in a batch when the stored variances were measured.

Layers in training mode average the variance *within* batches. That of a batch of g examples misses the part of the
variance that lies between batches, Var[mean of an example]/g: in a channel where examples differ much, small batches
leave a variance that is visibly too small. If f is the variance of the whole data, v₂ the mean variance within batches
of two and s the stored one, then log f/s ≈ (2/g)·log f/v₂ in every channel. The slope over all channels gives g:

    b = Σ log(f/s)·log(f/v₂) / Σ log²(f/v₂),    g = 2/b.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

MAX_SLOPE = 1.6
"""A batch has more than one example: if g is below 1.25, something else is the cause."""
TINY_SLOPE = 0.6
"""Batches of at most three examples, whose statistics are bad."""
MIN_SLOPE = 0.4
"""Batches of five. The statistics of larger ones can hardly be distinguished from good ones."""
MIN_CORRELATION = 0.5
MIN_DEFICIT = 0.01
"""The mean of log f/v₂ must exceed this: where examples hardly differ, the slope is undetermined."""


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
        return MIN_SLOPE <= self.slope <= MAX_SLOPE and self.correlation >= MIN_CORRELATION


def training_batches(
    whole: Mapping[str, Tensor], in_pairs: Mapping[str, Tensor], layers: Mapping[str, Any]
) -> TrainingBatches | None:
    """Compare the variances f and v₂ with those stored in the layers. None if the data does not determine the slope."""
    xs, ys = [], []
    for name, layer in layers.items():
        if name in in_pairs:
            f, v, s = (var.to(whole[name]) + layer.eps for var in (whole[name], in_pairs[name], layer.running_var))
            xs.append((f / v).log())
            ys.append((f / s).log())
    x, y = (torch.cat(logs) if logs else torch.zeros(0) for logs in (xs, ys))
    if len(x) < 3 or float(x.mean()) < MIN_DEFICIT:
        return None
    slope = float((x * y).sum() / (x * x).sum())
    return TrainingBatches(slope, float(torch.corrcoef(torch.stack([x, y]))[0, 1].nan_to_num()))
