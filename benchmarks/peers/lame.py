"""LAME (Boudiaf et al. 2022, "Parameter-free online test-time adaptation", CVPR).

The network stays as it is; only its outputs p_i for a batch change. Similar examples get similar classes: the
assignments z_i minimise

    Σ_i KL(z_i ‖ p_i) − Σ_ij w_ij·z_iᵀz_j,    by repeating    z_i ← softmax(log p_i + Σ_j w_ij·z_j)

until the objective no longer changes. The affinities w_ij come from the features f, scaled to length 1. Two kernels are
published, and both are measured:

    kNN   w_ij is 1 if j is one of the k examples nearest to i, otherwise 0: the kernel behind the figures of NOTE
          (Gong et al. 2022), which most comparisons quote
    rbf   w_ij = exp(−‖f_i − f_j‖²/(2σ²)), σ being the mean distance to the k-th nearest example, itself included:
          the default of the authors' own configuration

k = 5, at most 100 repetitions and a relative tolerance of 1e-8, as published.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .network import PixelNetwork

_STEPS, _TOLERANCE, _SMALLEST = 100, 1e-8, 1e-20


class LAME:
    """The outputs of an unadapted network, smoothed over each batch. It remembers nothing."""

    def __init__(self, network: PixelNetwork, affinities: Callable[[Tensor], Tensor]) -> None:
        self._network, self._affinities = network, affinities

    def __call__(self, images: Tensor) -> Tensor:
        features = self._network.features(images)
        log_p = self._network.classify(features).log_softmax(1)
        return smooth(log_p, self._affinities(F.normalize(features, dim=1))).clamp(min=_SMALLEST).log()

    def reset(self) -> None:
        """There is nothing to forget."""


def knn_affinities(features: Tensor, k: int = 5) -> Tensor:
    """w_ij of the kernel kNN, [N, N]."""
    distances = torch.cdist(features, features).fill_diagonal_(torch.inf)
    nearest = distances.topk(min(k, len(features) - 1), largest=False).indices
    return torch.zeros_like(distances).scatter_(1, nearest, 1.0)


def rbf_affinities(features: Tensor, k: int = 5) -> Tensor:
    """w_ij of the kernel rbf, [N, N]."""
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.topk(min(k, len(features)), largest=False).values
    bandwidth = nearest[:, -1].mean().clamp(min=1e-12)
    return torch.exp(-distances.square() / (2 * bandwidth.square()))


def smooth(log_p: Tensor, weights: Tensor) -> Tensor:
    """The assignments z, [N, classes]."""
    z, before = log_p.exp(), torch.inf
    for _ in range(_STEPS):
        attraction = weights @ z
        z = (log_p + attraction).softmax(1)
        objective = float((z * (z.clamp(min=_SMALLEST).log() - log_p - attraction)).sum())
        if abs(objective - before) <= _TOLERANCE * abs(objective):
            break
        before = objective
    return z
