"""Fits against numpy, however the data is cut; spectra against covariances with known ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.common import DiagnosticError
from predbn.diagnostics import Gaussian, profile, spectrum

from .models import linear, normal


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) > 0),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_batches_and_merges_give_the_fit_of_the_whole(sizes, columns, covariance, dtype):
    values = (normal(sum(sizes), columns, mean=100.0, seed=1)).to(dtype)
    whole, merged = Gaussian(covariance=covariance), Gaussian(covariance=covariance)
    for part in values.split(sizes):
        whole.update(part)
        one = Gaussian(covariance=covariance)
        one.update(part)
        merged = merged.merge(one)
    wide = values.double().numpy()
    for fit in (whole, merged, merged.take(slice(None)), merged.cpu()):
        assert fit.count == sum(sizes)
        np.testing.assert_allclose(fit.mean.numpy(), wide.mean(0), rtol=1e-12)
        np.testing.assert_allclose(fit.var.numpy(), wide.var(0), atol=1e-9)
        if covariance:
            expected = np.cov(wide.T, bias=True).reshape(columns, columns)
            np.testing.assert_allclose(fit.covariance.numpy(), expected, atol=1e-9)


def test_some_columns_are_a_marginal():
    values = normal(50, 6)
    part = Gaussian.fit(values, covariance=True).take(slice(2, 5))
    torch.testing.assert_close(part.covariance, Gaussian.fit(values[:, 2:5], covariance=True).covariance)
    torch.testing.assert_close(part.mean, values[:, 2:5].mean(0))


def test_what_was_not_kept_is_an_error():
    fit = Gaussian.fit(normal(5, 2))
    with pytest.raises(DiagnosticError, match="Only variances were kept"):
        _ = fit.covariance
    with pytest.raises(DiagnosticError, match="cannot be merged"):
        fit.merge(Gaussian(covariance=True))
    with pytest.raises(DiagnosticError, match="No values were seen"):
        _ = Gaussian().mean


def test_the_spectrum_is_the_variances_along_the_axes():
    rotation, _ = torch.linalg.qr(normal(5, 5, seed=4))
    scale = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0]).double()
    values = normal(200, 5)
    values -= values.mean(0)
    whitened = values @ torch.linalg.inv(torch.linalg.cholesky(values.T @ values / 200)).T
    eigenvalues = spectrum(Gaussian.fit(whitened * scale @ rotation, covariance=True))
    np.testing.assert_allclose(eigenvalues.numpy(), scale.square().numpy(), atol=1e-9)
    assert (eigenvalues >= 0).all()
    assert len(spectrum(Gaussian.fit(values, covariance=True), top=2)) == 2


def test_the_spectra_of_a_linear_network_on_white_noise():
    """Embeddings A x of x ~ N(0, 1) have the covariance A Aᵀ, logits B A x have B A Aᵀ Bᵀ."""
    model, x = linear(), normal(40_000, 6, seed=9)
    activations = profile(model, x.split(5_000))
    a, b = model.first.weight, model.last.weight
    for distribution, matrix in ((activations.embeddings, a), (activations.logits, b @ a)):
        expected = torch.linalg.svdvals(matrix).square()[: len(matrix)]
        torch.testing.assert_close(spectrum(distribution.gaussian), expected.detach(), rtol=0.03, atol=1e-9)
