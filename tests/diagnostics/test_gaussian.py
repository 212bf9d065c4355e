"""Fits against numpy, however the data is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.diagnostics import DiagnosticError, Gaussian

from .models import normal


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
            wanted = np.cov(wide.T, bias=True).reshape(columns, columns)
            np.testing.assert_allclose(fit.covariance.numpy(), wanted, atol=1e-9)


def test_some_columns_are_a_marginal():
    values = normal(50, 6)
    part = Gaussian.fit(values, covariance=True).take(slice(2, 5))
    torch.testing.assert_close(part.covariance, Gaussian.fit(values[:, 2:5], covariance=True).covariance)
    torch.testing.assert_close(part.mean, values[:, 2:5].mean(0))


def test_what_was_not_kept_cannot_be_had():
    fit = Gaussian.fit(normal(5, 2))
    with pytest.raises(DiagnosticError, match="Only variances were kept"):
        _ = fit.covariance
    with pytest.raises(DiagnosticError, match="cannot be merged"):
        fit.merge(Gaussian(covariance=True))
    with pytest.raises(DiagnosticError, match="No values were seen"):
        _ = Gaussian().mean
