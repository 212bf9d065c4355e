"""How far the test data's activations are from the training data's: divergences between Gaussian fits.

The paper writes KL(p ‖ q) for training activations p and test activations q, and approximates it by

    T⁻¹ Σ_i ln q̂(h_i) / p̂(h_i),    h_i the T test points, p̂ and q̂ Gaussians with the moments of p and q.

Two things about it are worth knowing. A mean over *test* points of ln q/p estimates KL(q ‖ p), the other
direction than the one written: it is large where test points fall where training points do not. And it needs no
second pass over the points: ln q̂/p̂ is quadratic in h, so that its mean over the test points depends on their
means and (co)variances alone, which are those of q̂. The sum therefore *is* the closed form KL(q̂ ‖ p̂), up to
rounding. `paper_divergence` computes it so; `log_ratio` gives the summands for points at hand.

Variances smaller than `floor` times the mean training variance count as that much: a dimension that never moves
(a dead unit) would make every divergence infinite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import DiagnosticError

from .gaussian import Gaussian

__all__ = ["FLOOR", "kl", "log_ratio", "paper_divergence"]

FLOOR = 1e-6


def paper_divergence(train: Gaussian, test: Gaussian, *, full: bool = False, floor: float = FLOOR) -> float:
    """T⁻¹ Σ_i ln q̂(h_i)/p̂(h_i) over the test points h_i, in nats, from the two fits alone: KL(q̂ ‖ p̂).

    The Gaussians have independent dimensions as in the paper; with `full` they have whole covariances.
    """
    return _kl(test, train, full=full, least=_least(train, floor))


def kl(p: Gaussian, q: Gaussian, *, full: bool = False, floor: float = FLOOR) -> float:
    """KL(p ‖ q) in nats between two fits. The floor is relative to the variances of p.

    Independent dimensions:  ½ Σ_d [ σ²_p/σ²_q + (μ_q − μ_p)²/σ²_q − 1 + ln σ²_q/σ²_p ]
    whole covariances:       ½ [ tr(Σ_q⁻¹ Σ_p) + (μ_q − μ_p)ᵀ Σ_q⁻¹ (μ_q − μ_p) − D + ln det Σ_q / det Σ_p ]
    """
    return _kl(p, q, full=full, least=_least(p, floor))


def log_ratio(points: Tensor, train: Gaussian, test: Gaussian, *, full: bool = False, floor: float = FLOOR) -> Tensor:
    """ln q̂(h)/p̂(h) of each of [n, columns] points, float64 [n]; q̂ is the test fit, p̂ the training fit."""
    _check(train, test)
    least = _least(train, floor)
    return _log_density(points, test, full, least) - _log_density(points, train, full, least)


def _kl(p: Gaussian, q: Gaussian, *, full: bool, least: float) -> float:
    _check(p, q)
    delta = (q.mean - p.mean.to(q.mean.device))[:, None]
    if full:
        lower_p, lower_q = _cholesky(p, least).to(delta.device), _cholesky(q, least)
        spread = torch.linalg.solve_triangular(lower_q, lower_p, upper=False).square().sum()
        shift = torch.linalg.solve_triangular(lower_q, delta, upper=False).square().sum()
        scale = 2 * (lower_q.diagonal().log() - lower_p.diagonal().log()).sum()
        return float(0.5 * (spread + shift - len(delta) + scale))
    var_p, var_q = p.var.clamp(min=least).to(delta.device), q.var.clamp(min=least)
    return float(0.5 * (var_p / var_q + delta[:, 0].square() / var_q - 1 + (var_q / var_p).log()).sum())


def _log_density(points: Tensor, fit: Gaussian, full: bool, least: float) -> Tensor:
    """ln of the density but for −½ D ln 2π, which every ratio cancels."""
    centred = points.detach().double() - fit.mean.to(points.device)
    if full:
        lower = _cholesky(fit, least).to(points.device)
        whitened: Tensor = torch.linalg.solve_triangular(lower, centred.T, upper=False)
        return -0.5 * whitened.square().sum(0) - lower.diagonal().log().sum()
    var = fit.var.clamp(min=least).to(points.device)
    return -0.5 * (centred.square() / var + var.log()).sum(1)


def _cholesky(fit: Gaussian, least: float) -> Tensor:
    """The factor of a covariance whose variances in *every direction* are at least `least`."""
    values, vectors = torch.linalg.eigh(fit.covariance)
    covariance = (vectors * values.clamp(min=least)) @ vectors.T
    lower: Tensor = torch.linalg.cholesky(covariance)
    return lower


def _least(train: Gaussian, floor: float) -> float:
    """The smallest variance that counts; a fit that never moves at all has no scale of its own."""
    return floor * (float(train.var.mean()) or 1.0)


def _check(p: Gaussian, q: Gaussian) -> None:
    if p.mean.shape != q.mean.shape:
        raise DiagnosticError(
            f"The fits have {len(p.mean)} and {len(q.mean)} dimensions: compare the same layer of the same model."
        )
