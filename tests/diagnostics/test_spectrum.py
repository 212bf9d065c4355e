"""Spectra against a covariance that was made with known ones."""

from __future__ import annotations

import numpy as np
import torch

from predbn.diagnostics import Gaussian, profile, spectrum

from .models import linear, normal


def test_the_variances_along_the_axes():
    turn, _ = torch.linalg.qr(normal(5, 5, seed=4))
    scale = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0]).double()
    values = normal(200, 5)
    values -= values.mean(0)
    whitened = values @ torch.linalg.inv(torch.linalg.cholesky(values.T @ values / 200)).T
    found = spectrum(Gaussian.fit(whitened * scale @ turn, covariance=True))
    np.testing.assert_allclose(found.numpy(), scale.square().numpy(), atol=1e-9)
    assert (found >= 0).all()
    assert len(spectrum(Gaussian.fit(values, covariance=True), top=2)) == 2


def test_a_linear_network_on_white_noise():
    """Embeddings A x of x ~ N(0, 1) have the covariance A Aᵀ, logits B A x have B A Aᵀ Bᵀ."""
    model, x = linear(), normal(40_000, 6, seed=9)
    seen = profile(model, x.split(5_000))
    a, b = model.first.weight, model.last.weight
    for found, matrix in ((seen.embeddings, a), (seen.logits, b @ a)):
        wanted = torch.linalg.svdvals(matrix).square()[: len(matrix)]
        torch.testing.assert_close(spectrum(found.gaussian), wanted.detach(), rtol=0.03, atol=1e-9)
