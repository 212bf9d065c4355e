"""Gaussian fits of a stream of values: means, and variances or the whole covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import DiagnosticError
from predbn.norm import pool_central_moments


class Gaussian:
    """The normal distribution with the means and (co)variances of all [n, columns] values seen.

    Variances are the biased ones, Σ (x − mean)² / n, those of the maximum-likelihood fit. Batches are pooled exactly,
    in float64, so how the data is cut makes no difference. With `covariance` the whole matrix is kept, otherwise its
    diagonal. An update on a GPU does not wait for it.
    """

    def __init__(self, *, covariance: bool = False) -> None:
        self.count = 0
        self.full = covariance
        self._mean = torch.zeros(0, dtype=torch.float64)
        self._covariance = torch.zeros(0, dtype=torch.float64)

    @classmethod
    def fit(cls, values: Tensor, *, covariance: bool = False) -> Gaussian:
        """The fit of values that are all there."""
        gaussian = cls(covariance=covariance)
        gaussian.update(values)
        return gaussian

    def update(self, values: Tensor) -> None:
        """Add [n, columns] values of any floating dtype."""
        if not len(values):
            return
        wide = values.detach().double()
        mean = wide.mean(0)
        centred = wide - mean
        covariance = (centred.T @ centred if self.full else centred.square().sum(0)) / len(values)
        self._pool(len(values), mean, covariance)

    def merge(self, other: Gaussian) -> Gaussian:
        """The fit of everything that both have seen."""
        if self.full != other.full:
            raise DiagnosticError("A fit with covariances and one without cannot be merged: keep them for both.")
        merged = self._with(self._mean, self._covariance)
        if other.count:
            device = self._mean.device if self.count else other._mean.device
            merged._pool(other.count, other._mean.to(device), other._covariance.to(device))
        return merged

    def take(self, columns: slice) -> Gaussian:
        """The fit of some of the columns, which is a marginal of this one."""
        covariance = self._covariance[columns, columns] if self.full else self._covariance[columns]
        return self._with(self._mean[columns], covariance)

    def cpu(self) -> Gaussian:
        """The same on the CPU."""
        return self._with(self._mean.cpu(), self._covariance.cpu())

    @property
    def mean(self) -> Tensor:
        """[columns], float64."""
        self._check()
        return self._mean

    @property
    def var(self) -> Tensor:
        """[columns], float64."""
        self._check()
        return self._covariance.diagonal() if self.full else self._covariance

    @property
    def covariance(self) -> Tensor:
        """[columns, columns], float64."""
        self._check()
        if not self.full:
            raise DiagnosticError("Only variances were kept here: ask for the covariance when the data is seen.")
        return self._covariance

    def _pool(self, count: int, mean: Tensor, covariance: Tensor) -> None:
        if self.count:
            mean, covariance = pool_central_moments(
                (self._mean, self._covariance),
                (mean, covariance),
                count / (self.count + count),
                torch.outer if self.full else torch.mul,
            )
        self._mean, self._covariance = mean, covariance
        self.count += count

    def _with(self, mean: Tensor, covariance: Tensor) -> Gaussian:
        gaussian = Gaussian(covariance=self.full)
        gaussian.count, gaussian._mean, gaussian._covariance = self.count, mean, covariance
        return gaussian

    def _check(self) -> None:
        if not self.count:
            raise DiagnosticError("No values were seen yet, so there is nothing to fit: give some data.")


def spectrum(fit: Gaussian, *, top: int | None = None) -> Tensor:
    """The eigenvalues of the covariance in descending order, float64; with `top`, only that many.

    They are the variances along the principal axes. Rounding may leave those of a degenerate covariance slightly
    negative; they are set to 0.
    """
    values: Tensor = torch.linalg.eigvalsh(fit.covariance).flip(0).clamp(min=0)
    return values if top is None else values[:top]
