"""Histograms of many channels at once. Each channel has its own bins, which all data sets share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from predbn.common import DiagnosticError

_MARGIN = 1e-3
_MIN_MARGIN = 1e-6


@dataclass(frozen=True)
class Bins:
    """Bins of equal width for each of [columns] channels.

    `low` and `high` are the *support*, the range of the reference data (a thousandth wider on either side, so that
    rounding does not put its ends outside). `inside` bins divide it, and as many of the same width lie on either side,
    to show where a shifted distribution went: bin b of 3 · inside covers
    low + (b − inside + [0, 1)) · (high − low)/inside. Values further out are counted as below or above.
    """

    low: Tensor
    high: Tensor
    inside: int

    @classmethod
    def over(cls, low: Tensor, high: Tensor, inside: int) -> Bins:
        """Bins over a range; for a constant channel, a narrow range around its only value."""
        if isinstance(inside, bool) or not isinstance(inside, int) or inside < 2:
            raise DiagnosticError(f"bins is {inside!r}, but a histogram has a whole number of bins, 2 or more.")
        low, high = low.double(), high.double()
        least = _MIN_MARGIN * torch.maximum(low.abs(), high.abs()).clamp(min=1)
        margin = torch.maximum(_MARGIN * (high - low), least)
        return cls(low - margin, high + margin, inside)

    @classmethod
    def concatenate(cls, parts: Sequence[Bins]) -> Bins:
        """The bins of several layers side by side."""
        return cls(torch.cat([p.low for p in parts]), torch.cat([p.high for p in parts]), parts[0].inside)

    @property
    def width(self) -> Tensor:
        """[columns]"""
        return (self.high - self.low) / self.inside

    @property
    def edges(self) -> Tensor:
        """[columns, 3 · inside + 1]"""
        steps = torch.arange(-self.inside, 2 * self.inside + 1, device=self.low.device, dtype=torch.float64)
        return self.low[:, None] + steps * self.width[:, None]

    def take(self, columns: slice) -> Bins:
        """The bins of some of the columns."""
        return Bins(self.low[columns], self.high[columns], self.inside)

    def to(self, device: torch.device) -> Bins:
        """The same on a device."""
        return Bins(self.low.to(device), self.high.to(device), self.inside)

    def same(self, other: Bins) -> bool:
        """Whether these are exactly the same bins."""
        other = other.to(self.low.device)
        return self.inside == other.inside and self.low.equal(other.low) and self.high.equal(other.high)


class Histogram:
    """How often the values of each column fell into each of its bins.

    `counts` is int64 [columns, 3 · inside + 2]; the first counts values below all bins, the last those above. `beyond`
    is float64 [columns, 2]: the total amount by which these lie below or above, so that distances are right however far
    a value has moved. Counts add up exactly in any order. An update on a GPU does not wait for it.
    """

    def __init__(self, bins: Bins) -> None:
        self.bins = bins
        columns, cells = len(bins.low), 3 * bins.inside + 2
        device = bins.low.device
        self.count = 0
        self.counts = torch.zeros(columns, cells, dtype=torch.int64, device=device)
        self.beyond = torch.zeros(columns, 2, dtype=torch.float64, device=device)
        self._first_cell = torch.arange(columns, device=device) * cells
        self._start = bins.low - bins.inside * bins.width
        self._end = bins.high + bins.inside * bins.width

    def update(self, values: Tensor) -> None:
        """Add [n, columns] finite values of any floating dtype."""
        wide = values.detach().double()
        cell = ((wide - self.bins.low) / self.bins.width).floor() + (self.bins.inside + 1)
        last = self.counts.shape[1] - 1
        flat_cell = cell.nan_to_num(nan=last).clamp_(0, last).long() + self._first_cell
        one = torch.ones((), dtype=torch.int64, device=flat_cell.device).expand(flat_cell.numel())
        self.counts.view(-1).index_add_(0, flat_cell.flatten(), one)
        self.beyond[:, 0] += (self._start - wide).clamp_(min=0).sum(0)
        self.beyond[:, 1] += (wide - self._end).clamp_(min=0).sum(0)
        self.count += len(values)

    def merge(self, other: Histogram) -> Histogram:
        """The histogram of everything that both have seen, over the same bins."""
        if not self.bins.same(other.bins):
            raise DiagnosticError("These histograms have other bins: count both over the bins of one reference.")
        device = self.counts.device
        return self._with(
            self.bins,
            self.counts + other.counts.to(device),
            self.beyond + other.beyond.to(device),
            self.count + other.count,
        )

    def take(self, columns: slice) -> Histogram:
        """The histograms of some of the columns."""
        return self._with(self.bins.take(columns), self.counts[columns], self.beyond[columns], self.count)

    def cpu(self) -> Histogram:
        """The same on the CPU."""
        return self._with(self.bins.to(torch.device("cpu")), self.counts.cpu(), self.beyond.cpu(), self.count)

    @property
    def density(self) -> Tensor:
        """Share of the values in each bin, divided by its width: float64 [columns, 3 · inside]."""
        return self.counts[:, 1:-1].double() / self._checked_count() / self.bins.width[:, None]

    @property
    def cumulative(self) -> Tensor:
        """Share of the values below each edge: float64 [columns, 3 · inside + 1]."""
        return self.counts[:, :-1].cumsum(1).double() / self._checked_count()

    @property
    def outside(self) -> Tensor:
        """Share of the values outside the support: float64 [columns]."""
        inside = self.counts[:, self.bins.inside + 1 : 2 * self.bins.inside + 1].sum(1)
        return 1 - inside.double() / self._checked_count()

    def _checked_count(self) -> int:
        if not self.count:
            raise DiagnosticError("No values were seen yet, so there is no distribution: give some data.")
        return self.count

    def _with(self, bins: Bins, counts: Tensor, beyond: Tensor, count: int) -> Histogram:
        histogram = Histogram(bins)
        histogram.counts, histogram.beyond, histogram.count = counts, beyond, count
        return histogram
