"""Gaussian fits of a stream: means and variances, or the whole covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import DiagnosticError

__all__ = ["Gaussian"]


class Gaussian:
    """The normal distribution whose means and (co)variances are those of all [n, columns] values seen.

    Variances are the biased ones, Σ (x − mean)² / n, those of the maximum-likelihood fit. Batches are pooled
    in float64 by the rule of Chan, Golub and LeVeque, which is exact however the data is cut:
    with δ = mean_b − mean_a and n = n_a + n_b,

        mean = mean_a + δ · n_b / n,    scatter = scatter_a + scatter_b + δ δᵀ · n_a n_b / n.

    With `covariance` the scatter is a matrix, else its diagonal. An update on a GPU does not wait for it.
    """

    def __init__(self, *, covariance: bool = False) -> None:
        self.count = 0
        self.full = covariance
        self._mean = torch.zeros(0, dtype=torch.float64)
        self._scatter = torch.zeros(0, dtype=torch.float64)

    @classmethod
    def fit(cls, values: Tensor, *, covariance: bool = False) -> Gaussian:
        """The fit of values that are all there."""
        fitted = cls(covariance=covariance)
        fitted.update(values)
        return fitted

    def update(self, values: Tensor) -> None:
        """Add [n, columns] values of any floating dtype."""
        if not len(values):
            return
        wide = values.detach().double()
        mean = wide.mean(0)
        centred = wide - mean
        scatter = centred.T @ centred if self.full else centred.square().sum(0)
        self._pool(len(values), mean, scatter)

    def merge(self, other: Gaussian) -> Gaussian:
        """The fit of all that both have seen."""
        if self.full != other.full:
            raise DiagnosticError("A fit with covariances and one without cannot be merged: keep them for both.")
        merged = self._with(self._mean, self._scatter)
        if other.count:
            device = self._mean.device if self.count else other._mean.device
            merged._pool(other.count, other._mean.to(device), other._scatter.to(device))
        return merged

    def take(self, columns: slice) -> Gaussian:
        """The fit of some of the columns: a marginal of this one."""
        scatter = self._scatter[columns, columns] if self.full else self._scatter[columns]
        return self._with(self._mean[columns], scatter)

    def cpu(self) -> Gaussian:
        """The same on the CPU."""
        return self._with(self._mean.cpu(), self._scatter.cpu())

    @property
    def mean(self) -> Tensor:
        """[columns], float64."""
        self._check()
        return self._mean

    @property
    def var(self) -> Tensor:
        """[columns], float64."""
        self._check()
        return (self._scatter.diagonal() if self.full else self._scatter) / self.count

    @property
    def covariance(self) -> Tensor:
        """[columns, columns], float64."""
        self._check()
        if not self.full:
            raise DiagnosticError("Only variances were kept here: ask for the covariance when the data is seen.")
        return self._scatter / self.count

    def _pool(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        if not self.count:
            self.count, self._mean, self._scatter = count, mean, scatter
            return
        total = self.count + count
        delta = mean - self._mean
        between = torch.outer(delta, delta) if self.full else delta.square()
        self._scatter = self._scatter + scatter + between * (self.count * count / total)
        self._mean = self._mean + delta * (count / total)
        self.count = total

    def _with(self, mean: Tensor, scatter: Tensor) -> Gaussian:
        made = Gaussian(covariance=self.full)
        made.count, made._mean, made._scatter = self.count, mean, scatter
        return made

    def _check(self) -> None:
        if not self.count:
            raise DiagnosticError("No values were seen yet, so there is nothing to fit: give some data.")
