"""Calibration: reliability bins and the expected calibration error.

The convention for every bin in this package: with edges 0 = e_0 ≤ e_1 ≤ … ≤ e_B = 1, bin b holds the confidences in
(e_{b−1}, e_b], as in Guo et al. (2017); the first bin also holds 0. So a confidence of exactly 1 is in the last bin
with its neighbours. (torchmetrics 1.x closes its bins on the left and gives a confidence of exactly 1 its own bin, so
the two differ if confidences saturate.) Confidences are compared with the edges in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .checks import check_positive, prepare_inputs
from .classification import ranks

BinSums: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""How many predictions each bin has, how many of them are correct, and the sum of their confidences."""


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: confidence and accuracy in each bin.

    edges       [bins + 1] from 0 to 1
    count       [bins] examples
    confidence  [bins] their mean confidence, NaN in an empty bin
    accuracy    [bins] the share of correct predictions, NaN in an empty bin
    """

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @classmethod
    def from_sums(cls, edges: Tensor, count: Tensor, correct: Tensor, confidence: Tensor) -> Reliability:
        return cls(edges, count, confidence / count, correct.double() / count)

    def rows(self) -> list[dict[str, Any]]:
        """One record per bin, for a table or a chart; None in place of NaN."""
        columns = (self.edges[:-1], self.edges[1:], self.count, self.confidence, self.accuracy)
        names = ("low", "high", "count", "confidence", "accuracy")
        rows = [
            dict(zip(names, row, strict=True)) for row in zip(*(column.tolist() for column in columns), strict=True)
        ]
        return [row if row["count"] else {**row, "confidence": None, "accuracy": None} for row in rows]


def reliability(probabilities: Tensor, labels: Tensor, *, bins: int = 10) -> Reliability:
    """The reliability diagram of the most probable class, with bins of equal width."""
    edges, sums = _binned(probabilities, labels, bins)
    return Reliability.from_sums(edges, *sums)


def ece(probabilities: Tensor, labels: Tensor, *, bins: int = 10) -> Tensor:
    """The expected calibration error Σ_b n_b / n · |accuracy_b − confidence_b| over the bins of `reliability`."""
    _, (count, correct, confidence) = _binned(probabilities, labels, bins)
    return calibration_gap(correct, confidence) / count.sum()


def calibration_gap(correct: Tensor, confidence: Tensor) -> Tensor:
    """Σ_b |correct_b − confidence_b| over the sums of each bin: n times the ECE, and exact for integers."""
    return (correct - confidence).abs().sum()


def _binned(probabilities: Tensor, labels: Tensor, bins: int) -> tuple[Tensor, BinSums]:
    """The edges, and the sums of each bin."""
    check_positive("bins", bins)
    wide, labels = prepare_inputs(probabilities, labels)
    edges, confidence = equal_width_edges(bins, wide.device), wide.amax(1)
    return edges, bin_sums(edges, confidence, ranks(wide, labels) == 0, confidence)


def bin_sums(edges: Tensor, confidence: Tensor, correct: Tensor, addends: Tensor) -> BinSums:
    """Predictions, correct ones and the sum of `addends` in each bin.

    The addends are the confidences, as they are or as integer multiples of a small unit, whose sums are exact.
    """
    which, bins = bin_of(confidence, edges), len(edges) - 1
    count = sum_by_bin(torch.ones_like(which), which, bins)
    return count, sum_by_bin(correct.long(), which, bins), sum_by_bin(addends, which, bins)


def equal_width_edges(bins: int, device: torch.device | None = None) -> Tensor:
    """b / bins for b = 0 … bins, each correctly rounded."""
    return torch.arange(bins + 1, dtype=torch.float64, device=device) / bins


def bin_of(confidences: Tensor, edges: Tensor) -> Tensor:
    """The index of each confidence's bin, by the convention above."""
    return torch.bucketize(confidences.double(), edges[1:-1])


def sum_by_bin(values: Tensor, which: Tensor, bins: int) -> Tensor:
    """The sum of the values in each bin; for integers it is exact and so does not depend on their order."""
    return torch.zeros(bins, dtype=values.dtype, device=values.device).index_add_(0, which, values)
