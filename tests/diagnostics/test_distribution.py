"""Moments, spectra and histograms against numpy, however the data is cut."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.common import DiagnosticError
from predbn.diagnostics import Distribution
from predbn.diagnostics.distribution import Bins

from .models import normal


def bins_of(values: torch.Tensor, inside: int = 8) -> Bins:
    return Bins.over(values.amin(0), values.amax(0), inside)


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_merging_gives_the_distribution_of_the_whole(sizes, columns, covariance, dtype):
    values = (normal(sum(sizes), columns, mean=100.0, seed=1)).to(dtype)
    bins = bins_of(normal(20, columns, mean=100.0, seed=4))
    whole = Distribution.of(values, bins=bins, covariance=covariance)
    first, *others = (Distribution.of(part, bins=bins, covariance=covariance) for part in values.split(sizes))
    for other in others:
        first = first.merge(other)
    wide = values.double().numpy()
    for merged in (whole, first, first.to("cpu")):
        assert (merged.count, merged.columns) == (sum(sizes), columns)
        np.testing.assert_allclose(merged.mean.numpy(), wide.mean(0), rtol=1e-12)
        np.testing.assert_allclose(merged.var.numpy(), wide.var(0), atol=1e-9)
        assert merged.low.tolist() == wide.min(0).tolist()
        assert merged.high.tolist() == wide.max(0).tolist()
        assert merged.counts.equal(whole.counts)
        torch.testing.assert_close(merged.beyond, whole.beyond)
        if covariance:
            expected = np.cov(wide.T, bias=True).reshape(columns, columns)
            np.testing.assert_allclose(merged.second.numpy(), expected, atol=1e-9)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(2, 9), st.sampled_from([torch.float32, torch.float64]))
def test_counts_are_numpys(n, columns, inside, dtype):
    reference, values = normal(30, columns, seed=1), 2.5 * normal(n, columns, seed=2).to(dtype)
    distribution = Distribution.of(values, bins=bins_of(reference, inside))
    edges = distribution.bins.edges.numpy()
    for column in range(columns):
        wide = values[:, column].double().numpy()
        expected, _ = np.histogram(wide, np.concatenate(([-np.inf], edges[column], [np.inf])))
        assert distribution.counts[column].tolist() == expected.tolist()
        low, high = edges[column][[0, -1]]
        beyond = [np.maximum(low - wide, 0).sum(), np.maximum(wide - high, 0).sum()]
        np.testing.assert_allclose(distribution.beyond[column].numpy(), beyond, atol=1e-9)


def test_the_share_outside():
    bins = Bins.over(torch.tensor([0.0]), torch.tensor([1.0]), 4)
    values = torch.tensor([[-9.0], [-0.5], [0.0], [0.5], [1.0], [1.5], [99.0], [0.2]])
    distribution = Distribution.of(values, bins=bins)
    assert distribution.outside.tolist() == [0.5]
    assert distribution.counts[0, [0, -1]].tolist() == [1, 1]


def test_nan_and_infinity_do_not_affect_other_columns():
    values = torch.tensor([[float("nan"), 0.0], [float("inf"), 0.0], [-float("inf"), 0.0]])
    distribution = Distribution.of(values, bins=bins_of(normal(20, 2)))
    assert distribution.counts.sum(1).tolist() == [3, 3]
    assert distribution.outside[1] == 0


def test_what_cannot_be_compared_is_refused():
    values = normal(9, 2)
    plain, full = Distribution.of(values), Distribution.of(values, covariance=True)
    with pytest.raises(DiagnosticError, match="Only variances were kept"):
        plain.spectrum()
    with pytest.raises(DiagnosticError, match="of the same kind"):
        plain.merge(full)
    with pytest.raises(DiagnosticError, match="No histogram"):
        _ = plain.density
    a, b = (Distribution.of(values, bins=bins_of(normal(9, 2, seed=seed))) for seed in (0, 1))
    with pytest.raises(DiagnosticError, match="same bins"):
        a.merge(b)
    with pytest.raises(DiagnosticError, match="of the same kind"):
        a.merge(plain)
    with pytest.raises(DiagnosticError, match="at least 2, but got 1"):
        Bins.over(torch.zeros(1), torch.ones(1), 1)


def test_the_spectrum_is_the_variances_along_the_axes():
    rotation, _ = torch.linalg.qr(normal(5, 5, seed=4))
    scale = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0]).double()
    values = normal(200, 5)
    values -= values.mean(0)
    whitened = values @ torch.linalg.inv(torch.linalg.cholesky(values.T @ values / 200)).T
    distribution = Distribution.of(whitened * scale @ rotation, covariance=True)
    np.testing.assert_allclose(distribution.spectrum().numpy(), scale.square().numpy(), atol=1e-9)
    assert (distribution.spectrum() >= 0).all()
    assert len(distribution.spectrum(top=2)) == 2
