"""What is kept of the values of one layer, or of several layers side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import DiagnosticError

from .gaussian import Gaussian
from .histogram import Bins, Histogram


class Distribution:
    """Range, Gaussian fit and, if bins are given, histogram of [n, columns] values, in constant memory."""

    def __init__(self, *, bins: Bins | None = None, covariance: bool = False) -> None:
        self.gaussian = Gaussian(covariance=covariance)
        self.low = torch.zeros(0)
        self.high = torch.zeros(0)
        self._bins = bins
        self._histogram: Histogram | None = None

    @property
    def count(self) -> int:
        """The number of values per column."""
        return self.gaussian.count

    @property
    def columns(self) -> int:
        """The number of channels or dimensions."""
        return len(self.low)

    @property
    def histogram(self) -> Histogram:
        """The histogram over common bins."""
        if self._histogram is None:
            raise DiagnosticError("No histogram was kept here: give the profile whose bins to use as `like`.")
        return self._histogram

    def update(self, values: Tensor) -> None:
        """Add [n, columns] values."""
        if not len(values):
            return
        low, high = values.detach().aminmax(dim=0)
        if self.count:
            low, high = torch.minimum(self.low, low), torch.maximum(self.high, high)
        self.low, self.high = low, high
        self.gaussian.update(values)
        if self._bins is not None:
            if self._histogram is None:
                self._histogram = Histogram(self._bins.to(values.device))
            self._histogram.update(values)

    def bins(self, inside: int) -> Bins:
        """The bins of its histogram; if it has none, bins over its range."""
        return self._histogram.bins if self._histogram is not None else Bins.over(self.low, self.high, inside)

    def merge(self, other: Distribution) -> Distribution:
        """The distribution of everything that both have seen."""
        if not self.count or not other.count:
            return self if self.count else other
        if (self._histogram is None) != (other._histogram is None):
            raise DiagnosticError("Only one of the two has a histogram: keep it for both.")
        merged = Distribution(bins=self._bins, covariance=self.gaussian.full)
        merged.gaussian = self.gaussian.merge(other.gaussian)
        merged.low = torch.minimum(self.low, other.low.to(self.low.device))
        merged.high = torch.maximum(self.high, other.high.to(self.high.device))
        if self._histogram is not None and other._histogram is not None:
            merged._histogram = self._histogram.merge(other._histogram)
        return merged

    def take(self, columns: slice) -> Distribution:
        """The distribution of some of the columns."""
        taken = Distribution(covariance=self.gaussian.full)
        taken.gaussian = self.gaussian.take(columns)
        taken.low, taken.high = self.low[columns], self.high[columns]
        taken._histogram = None if self._histogram is None else self._histogram.take(columns)
        taken._bins = None if self._bins is None else self._bins.take(columns)
        return taken

    def cpu(self) -> Distribution:
        """The same on the CPU."""
        copy = self.take(slice(None))
        copy.gaussian = copy.gaussian.cpu()
        copy.low, copy.high = copy.low.cpu(), copy.high.cpu()
        copy._histogram = None if copy._histogram is None else copy._histogram.cpu()
        copy._bins = None if copy._bins is None else copy._bins.to(torch.device("cpu"))
        return copy
