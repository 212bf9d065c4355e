"""Covariance spectra: the shape of a distribution, whatever its place."""

from __future__ import annotations

import torch
from torch import Tensor

from .gaussian import Gaussian

__all__ = ["spectrum"]


def spectrum(fit: Gaussian, *, top: int | None = None) -> Tensor:
    """The eigenvalues of the covariance in descending order, float64; the `top` largest where a number is given.

    They are the variances along the principal axes. Rounding may leave those of a degenerate covariance a
    little below 0: they are 0.
    """
    values: Tensor = torch.linalg.eigvalsh(fit.covariance).flip(0).clamp(min=0)
    return values if top is None else values[:top]
