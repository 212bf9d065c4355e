"""Everything that is kept of one layer's values, or of several layers' side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import DiagnosticError

from .gaussian import Gaussian
from .histogram import Bins, Histogram

__all__ = ["Distribution"]


class Distribution:
    """Range, Gaussian fit and, where bins are given, histogram of [n, columns] values, in constant memory."""

    def __init__(self, *, bins: Bins | None = None, covariance: bool = False) -> None:
        self.gaussian = Gaussian(covariance=covariance)
        self.low = torch.zeros(0)
        self.high = torch.zeros(0)
        self._bins = bins
        self._histogram: Histogram | None = None

    @property
    def count(self) -> int:
        """How many values a column has."""
        return self.gaussian.count

    @property
    def columns(self) -> int:
        """How many channels or dimensions there are."""
        return len(self.low)

    @property
    def histogram(self) -> Histogram:
        """The histogram over common bins."""
        if self._histogram is None:
            raise DiagnosticError("No histogram was kept here: say with `like` which profile gives the bins.")
        return self._histogram

    def update(self, values: Tensor) -> None:
        """Add [n, columns] values."""
        if not len(values):
            return
        low, high = values.detach().aminmax(dim=0)
        seen = self.count > 0
        self.low = torch.minimum(self.low, low) if seen else low
        self.high = torch.maximum(self.high, high) if seen else high
        self.gaussian.update(values)
        if self._bins is not None:
            if self._histogram is None:
                self._histogram = Histogram(self._bins.to(values.device))
            self._histogram.update(values)

    def bins(self, inside: int) -> Bins:
        """The bins that its histogram has, or those over its range."""
        return self._histogram.bins if self._histogram is not None else Bins.over(self.low, self.high, inside)

    def merge(self, other: Distribution) -> Distribution:
        """What is kept of all that both have seen."""
        if not self.count or not other.count:
            return self if self.count else other
        if (self._histogram is None) != (other._histogram is None):
            raise DiagnosticError("One of the two has a histogram and the other has none: keep it for both.")
        merged = Distribution(bins=self._bins, covariance=self.gaussian.full)
        merged.gaussian = self.gaussian.merge(other.gaussian)
        merged.low = torch.minimum(self.low, other.low.to(self.low.device))
        merged.high = torch.maximum(self.high, other.high.to(self.high.device))
        if self._histogram is not None and other._histogram is not None:
            merged._histogram = self._histogram.merge(other._histogram)
        return merged

    def take(self, columns: slice) -> Distribution:
        """What is kept of some of the columns."""
        taken = Distribution(covariance=self.gaussian.full)
        taken.gaussian = self.gaussian.take(columns)
        taken.low, taken.high = self.low[columns], self.high[columns]
        taken._histogram = None if self._histogram is None else self._histogram.take(columns)
        taken._bins = None if self._bins is None else self._bins.take(columns)
        return taken

    def cpu(self) -> Distribution:
        """The same on the CPU."""
        there = self.take(slice(None))
        there.gaussian = there.gaussian.cpu()
        there.low, there.high = there.low.cpu(), there.high.cpu()
        there._histogram = None if there._histogram is None else there._histogram.cpu()
        there._bins = None if there._bins is None else there._bins.to(torch.device("cpu"))
        return there
