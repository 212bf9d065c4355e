"""The confidence of predictions: a histogram and the mean entropy, without labels."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import DiagnosticError
from predbn.metrics import bin_of, equal_width_edges, sum_by_bin


class Confidence:
    """Counts of the largest probability in bins of equal width, its mean, and the mean entropy −Σ p ln p in nats.

    Bins are (low, high], as in `predbn.metrics`, whose `Scores(bins=100)` adds the accuracy of each bin if there are
    labels. A single column of logits is taken as binary classification.
    """

    def __init__(self, *, bins: int = 100) -> None:
        self.bins = bins
        self.count = 0
        self._counts = torch.zeros(bins, dtype=torch.int64)
        self._sums = torch.zeros(2, dtype=torch.float64)

    def update(self, logits: Tensor) -> None:
        """Add [n, classes] logits."""
        wide = logits.detach().double()
        if wide.shape[1] == 1:
            wide = torch.cat((torch.zeros_like(wide), wide), 1)
        log_p = torch.log_softmax(wide, 1)
        confidence = log_p.amax(1).exp()
        entropy = torch.special.entr(log_p.exp()).sum(1)
        bins = bin_of(confidence, equal_width_edges(self.bins, wide.device))
        self._counts = self._counts.to(wide.device) + sum_by_bin(torch.ones_like(bins), bins, self.bins)
        self._sums = self._sums.to(wide.device) + torch.stack((confidence.sum(), entropy.sum()))
        self.count += len(logits)

    def merge(self, other: Confidence) -> Confidence:
        """The histogram of everything that both have seen."""
        if self.bins != other.bins:
            raise DiagnosticError(f"Histograms of {self.bins} and {other.bins} bins cannot be merged: use one number.")
        merged = Confidence(bins=self.bins)
        merged.count = self.count + other.count
        merged._counts = self._counts + other._counts.to(self._counts.device)
        merged._sums = self._sums + other._sums.to(self._sums.device)
        return merged

    @property
    def counts(self) -> Tensor:
        """int64 [bins], on the CPU."""
        return self._counts.cpu()

    @property
    def mean(self) -> float:
        """The mean confidence."""
        return float(self._sums[0]) / self._checked_count()

    @property
    def entropy(self) -> float:
        """The mean entropy in nats."""
        return float(self._sums[1]) / self._checked_count()

    def _checked_count(self) -> int:
        if not self.count:
            raise DiagnosticError("No predictions were seen yet: give some data.")
        return self.count
