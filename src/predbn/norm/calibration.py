"""What one pass over unlabelled source data tells about each layer."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

USUAL_CLASS_SHARE = 0.25
"""How much of the variance of examples lies between classes, where that could not be measured."""


class Calibration(NamedTuple):
    """The moments of single examples over source data, per channel, with the layers above normalising
    as in training.

    An example i has, in each channel, a mean m_i and a mean square q_i. A batch of n source examples
    has mean Σm_i/n, whose sampling variance is `mean_var`/n; and so for the mean square. That is what
    a strategy needs to tell a shift from chance, and the source data's own offset from the stored
    statistics.
    """

    size: int
    mean: Tensor
    """E[m_i]: with maps of one size, the mean of all values."""
    square: Tensor
    """E[q_i]: with maps of one size, the mean square of all values."""
    mean_var: Tensor
    """Var[m_i] over examples."""
    square_var: Tensor
    """Var[q_i] over examples."""
    covariance: Tensor
    """Cov[m_i, q_i] over examples."""
    mean_var_within: Tensor
    """The same three about the centres of the classes that the model predicts: how examples of one class vary. Three
    quarters of them where no two examples of a class came in one batch."""
    square_var_within: Tensor
    covariance_within: Tensor

    def to(self, device: torch.device) -> Calibration:
        return Calibration(self.size, *(t.to(device) for t in self[1:]))


class CalibrationAccumulator:
    """Collects a `Calibration` batch by batch, exactly whatever the batches are (Chan et al.), in
    double precision."""

    def __init__(self) -> None:
        self.size = 0
        self._mean = torch.zeros(())
        self._scatter = torch.zeros(())
        self._within = torch.zeros(())
        self._pairs = 0

    def update(self, mean: Tensor, square: Tensor) -> None:
        """`mean` and `square`: [N, C], the moments of each example."""
        pairs = torch.stack([mean, square]).double()
        n = pairs.shape[1]
        if n == 0:
            return
        batch_mean = pairs.mean(1)
        centred = pairs - batch_mean[:, None]
        scatter = _scatter(centred)
        if self.size == 0:
            self._mean, self._scatter = batch_mean, scatter
        else:
            delta = batch_mean - self._mean
            between = torch.stack([*(delta**2), delta[0] * delta[1]])
            self._scatter = self._scatter + scatter + between * (self.size * n / (self.size + n))
            self._mean = self._mean + delta * (n / (self.size + n))
        self.size += n

    def update_classes(self, mean: Tensor, square: Tensor, classes: Tensor) -> None:
        """The same moments once the classes [N] of the examples are predicted. What examples of a class in one batch
        differ by is enough, so that nothing has to be kept for each class."""
        pairs = torch.stack([mean, square]).double()
        _, place, sizes = classes.unique(return_inverse=True, return_counts=True)
        centres = torch.zeros_like(pairs[:, : len(sizes)]).index_add_(1, place, pairs) / sizes[:, None]
        self._within = self._within + _scatter(pairs - centres[:, place])
        self._pairs += len(classes) - len(sizes)

    def result(self, dtype: torch.dtype) -> Calibration:
        total = self._scatter / self.size
        within = self._within / self._pairs if self._pairs else (1 - USUAL_CLASS_SHARE) * total
        return Calibration(self.size, *self._mean.to(dtype), *total.to(dtype), *within.to(dtype))


def _scatter(centred: Tensor) -> Tensor:
    """Of [2, N, C] the sums of squares of both and of their product, [3, C]."""
    return torch.stack([*(centred**2).sum(1), (centred[0] * centred[1]).sum(0)])
