"""Calibration: reliability bins and the expected calibration error.

The convention, for every bin in this package: with edges 0 = e_0 ≤ e_1 ≤ … ≤ e_B = 1, bin b holds the
confidences in (e_{b−1}, e_b], as in Guo et al. (2017); the first also holds 0. So a confidence of exactly
1 lies in the last bin with its neighbours, and 0 is no special case. (torchmetrics 1.x closes its bins on
the left and gives a confidence of exactly 1 a bin of its own, so that the two differ where confidences
saturate.) Confidences are compared with the edges in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .accuracy import ranks
from .checks import check_positive, prepare


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: what was promised and what was kept, bin by bin.

    edges       [bins + 1] from 0 to 1
    count       [bins] examples
    confidence  [bins] their mean confidence, NaN where there is none
    accuracy    [bins] the share that was right, NaN where there is none
    """

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def ece(self) -> Tensor:
        """Σ_b n_b / n · |accuracy_b − confidence_b|."""
        gaps = (self.accuracy - self.confidence).abs().nan_to_num(0.0)
        return (gaps * self.count).sum() / self.count.sum()

    def rows(self) -> list[dict[str, Any]]:
        """One record a bin, for a table or a chart; None in place of NaN."""
        edges, columns = self.edges.tolist(), (self.count, self.confidence, self.accuracy)
        return [
            {
                "low": low,
                "high": high,
                "count": count,
                "confidence": confidence if count else None,
                "accuracy": accuracy if count else None,
            }
            for low, high, count, confidence, accuracy in zip(
                edges[:-1], edges[1:], *(column.tolist() for column in columns), strict=True
            )
        ]


def reliability(probabilities: Tensor, labels: Tensor, *, bins: int = 10, equal_mass: bool = False) -> Reliability:
    """The reliability diagram of the most probable class.

    Bins have equal width, or with `equal_mass` equal numbers of examples as far as ties allow: edge b is
    the ⌈b n / bins⌉-th smallest confidence, so equal confidences share a bin whatever their order.
    """
    check_positive("bins", bins)
    wide, labels = prepare(probabilities, labels)
    confidences = wide.amax(1)
    edges = equal_mass_edges(confidences, bins) if equal_mass else equal_width_edges(bins, wide.device)
    return reliability_of(confidences, ranks(wide, labels) == 0, edges)


def ece(probabilities: Tensor, labels: Tensor, *, bins: int = 10, equal_mass: bool = False) -> Tensor:
    """The expected calibration error Σ_b n_b / n · |accuracy_b − confidence_b| over the bins of `reliability`."""
    return reliability(probabilities, labels, bins=bins, equal_mass=equal_mass).ece


def reliability_of(confidences: Tensor, right: Tensor, edges: Tensor) -> Reliability:
    """The diagram of [n] float64 confidences of which [n] were right, over given edges."""
    which, bins = bin_of(confidences, edges), len(edges) - 1
    count = sum_by_bin(torch.ones_like(which), which, bins)
    mean_confidence = sum_by_bin(confidences, which, bins) / count
    return Reliability(edges, count, mean_confidence, sum_by_bin(right.double(), which, bins) / count)


def equal_width_edges(bins: int, device: torch.device | None = None) -> Tensor:
    """b / bins for b = 0 … bins, each correctly rounded."""
    return torch.arange(bins + 1, dtype=torch.float64, device=device) / bins


def equal_mass_edges(confidences: Tensor, bins: int) -> Tensor:
    """The ⌈b n / bins⌉-th smallest confidences between 0 and 1."""
    inner = torch.arange(1, bins, device=confidences.device)
    positions = (inner * len(confidences) + bins - 1) // bins - 1
    ends = confidences.new_tensor([0.0, 1.0])
    return torch.cat((ends[:1], confidences.sort().values[positions], ends[1:]))


def bin_of(confidences: Tensor, edges: Tensor) -> Tensor:
    """The bin of each confidence, by the convention above."""
    return torch.bucketize(confidences.double(), edges[1:-1])


def sum_by_bin(values: Tensor, which: Tensor, bins: int) -> Tensor:
    """The sum of the values in each bin; exact, and so independent of order, for integers."""
    return torch.zeros(bins, dtype=values.dtype, device=values.device).index_add_(0, which, values)
