"""The distribution of many channels at once: range, moments and histograms, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from predbn.common import DiagnosticError
from predbn.norm import pool_central_moments

_MARGIN = 1e-3
_MIN_MARGIN = 1e-6


@dataclass(frozen=True)
class Bins:
    """Bins of equal width for each of [columns] channels, which all data sets share.

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
            raise DiagnosticError(f"bins must be an integer of at least 2, but got {inside!r}.")
        low, high = low.double(), high.double()
        min_margin = _MIN_MARGIN * torch.maximum(low.abs(), high.abs()).clamp(min=1)
        margin = torch.maximum(_MARGIN * (high - low), min_margin)
        return cls(low - margin, high + margin, inside)

    @property
    def width(self) -> Tensor:
        """[columns]"""
        return (self.high - self.low) / self.inside

    @property
    def edges(self) -> Tensor:
        """[columns, 3 · inside + 1]"""
        steps = torch.arange(-self.inside, 2 * self.inside + 1, device=self.low.device, dtype=torch.float64)
        return self.low[:, None] + steps * self.width[:, None]

    def to(self, device: torch.device | str) -> Bins:
        return Bins(self.low.to(device), self.high.to(device), self.inside)

    def equal(self, other: Bins) -> bool:
        return self.inside == other.inside and self.low.equal(other.low) and self.high.equal(other.high)


@dataclass(frozen=True)
class Distribution:
    """The distribution of all [n, columns] values of some batches, which `merge` pools exactly, in float64.

    low, high   the range of each column
    mean        the mean of each column
    second      the biased variances Σ (x − mean)² / n, or the whole covariance matrix
    bins        the bins of the histogram, if there is one
    counts      int64 [columns, 3 · inside + 2]; the first counts values below all bins, the last those above
    beyond      [columns, 2]: the total amount by which these lie below or above, so that distances are right however
                far a value has moved
    """

    count: int
    low: Tensor
    high: Tensor
    mean: Tensor
    second: Tensor
    bins: Bins | None = None
    counts: Tensor | None = None
    beyond: Tensor | None = None

    @classmethod
    def of(cls, values: Tensor, *, bins: Bins | None = None, covariance: bool = False) -> Distribution:
        """The distribution of [n, columns] values of any floating dtype. On a GPU it does not synchronise."""
        wide = values.detach().double()
        mean = wide.mean(0)
        centred = wide - mean
        second = (centred.T @ centred if covariance else centred.square().sum(0)) / len(values)
        low, high = wide.aminmax(dim=0)
        return cls(len(values), low, high, mean, second, bins, *(() if bins is None else _histogram(wide, bins)))

    def merge(self, other: Distribution) -> Distribution:
        """The distribution of everything that both have seen."""
        if self.second.dim() != other.second.dim() or (self.bins is None) != (other.bins is None):
            raise DiagnosticError(
                "Expected two distributions of the same kind: keep a histogram or covariance of both."
            )
        product = torch.outer if self.second.dim() == 2 else torch.mul
        weight = other.count / (self.count + other.count)
        mean, second = pool_central_moments((self.mean, self.second), (other.mean, other.second), weight, product)
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        merged = Distribution(self.count + other.count, low, high, mean, second, self.bins)
        if self.counts is None or other.counts is None or self.beyond is None or other.beyond is None:
            return merged
        check_same_bins(self, other)
        return replace(merged, counts=self.counts + other.counts, beyond=self.beyond + other.beyond)

    def to(self, device: torch.device | str) -> Distribution:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return Distribution(**{k: v.to(device) if hasattr(v, "to") else v for k, v in values.items()})

    @property
    def columns(self) -> int:
        return len(self.low)

    @property
    def var(self) -> Tensor:
        """The biased variance of each column."""
        return self.second.diagonal() if self.second.dim() == 2 else self.second

    @property
    def histogram(self) -> tuple[Bins, Tensor, Tensor]:
        """Bins, counts and beyond."""
        if self.bins is None or self.counts is None or self.beyond is None:
            raise DiagnosticError("No histogram was kept: give the profile whose bins to use as `like`.")
        return self.bins, self.counts, self.beyond

    @property
    def density(self) -> Tensor:
        """Share of the values in each bin, divided by its width: [columns, 3 · inside]."""
        bins, counts, _ = self.histogram
        return counts[:, 1:-1].double() / self.count / bins.width[:, None]

    @property
    def cumulative(self) -> Tensor:
        """Share of the values below each edge: [columns, 3 · inside + 1]."""
        return self.histogram[1][:, :-1].cumsum(1).double() / self.count

    @property
    def outside(self) -> Tensor:
        """Share of the values outside the support: [columns]."""
        bins, counts, _ = self.histogram
        return 1 - counts[:, bins.inside + 1 : 2 * bins.inside + 1].sum(1).double() / self.count

    def spectrum(self, *, top: int | None = None) -> Tensor:
        """The eigenvalues of the covariance in descending order; with `top`, only that many.

        They are the variances along the principal axes. Rounding may leave those of a degenerate covariance slightly
        negative; they are set to 0.
        """
        if self.second.dim() != 2:
            raise DiagnosticError("Only variances were kept here; embeddings and logits have covariances.")
        values: Tensor = torch.linalg.eigvalsh(self.second).flip(0).clamp(min=0)
        return values if top is None else values[:top]


def check_same_bins(a: Distribution, b: Distribution) -> None:
    """Refuse histograms that cannot be compared."""
    if a.histogram[0] is not b.histogram[0] and not a.histogram[0].equal(b.histogram[0]):
        raise DiagnosticError("Expected two histograms with the same bins: count both over the bins of one reference.")


def _histogram(wide: Tensor, bins: Bins) -> tuple[Tensor, Tensor]:
    """Counts and beyond of [n, columns] values."""
    cells = 3 * bins.inside + 2
    cell = ((wide - bins.low) / bins.width).floor() + (bins.inside + 1)
    cell = cell.nan_to_num(nan=cells - 1).clamp_(0, cells - 1).long().T
    one = torch.ones((), dtype=torch.int64, device=cell.device).expand(cell.shape)
    counts = torch.zeros(len(bins.low), cells, dtype=torch.int64, device=cell.device).scatter_add_(1, cell, one)
    outer = bins.inside * bins.width
    beyond = (bins.low - outer - wide).clamp_(min=0).sum(0), (wide - bins.high - outer).clamp_(min=0).sum(0)
    return counts, torch.stack(beyond, 1)
