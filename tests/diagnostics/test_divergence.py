"""Divergences against scipy's densities, point by point, and against torch's closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from predbn.diagnostics import DiagnosticError, Gaussian, kl, log_ratio, paper_divergence

from .models import normal


@pytest.fixture
def pair():
    mix = normal(4, 4, seed=3)
    train, test = normal(400, 4, seed=1) @ mix, 0.7 + 1.3 * normal(300, 4, seed=2) @ mix.T
    return train, test


def scipy_fit(values: torch.Tensor, full: bool):
    covariance = np.cov(values.numpy().T, bias=True)
    return scipy.stats.multivariate_normal(values.numpy().mean(0), covariance if full else np.diag(np.diag(covariance)))


@pytest.mark.parametrize("full", [False, True])
def test_the_papers_sum_over_test_points_is_the_closed_form(pair, full):
    train, test = pair
    p, q = (Gaussian.fit(values, covariance=True) for values in pair)
    points = scipy_fit(test, full).logpdf(test.numpy()) - scipy_fit(train, full).logpdf(test.numpy())
    np.testing.assert_allclose(log_ratio(test, p, q, full=full).numpy(), points, rtol=1e-9, atol=1e-9)
    assert paper_divergence(p, q, full=full) == pytest.approx(points.mean(), rel=1e-10)
    assert paper_divergence(p, q, full=full) == pytest.approx(kl(q, p, full=full), rel=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_the_closed_form_is_torchs(pair, full):
    p, q = (Gaussian.fit(values, covariance=True) for values in pair)
    if full:
        wanted = kl_divergence(*(MultivariateNormal(fit.mean, fit.covariance) for fit in (p, q)))
    else:
        wanted = kl_divergence(*(Normal(fit.mean, fit.var.sqrt()) for fit in (p, q))).sum()
    assert kl(p, q, full=full) == pytest.approx(float(wanted), rel=1e-9)
    assert kl(p, p, full=full) == pytest.approx(0, abs=1e-9)


def test_known_by_hand():
    """One dimension, equal spread σ, means δ apart: δ²/2σ² in either direction."""
    p, q = (Gaussian.fit(torch.tensor([[at - 2.0], [at + 2.0]])) for at in (0.0, 6.0))
    assert kl(p, q) == pytest.approx(36 / 8) == kl(q, p) == paper_divergence(p, q)


@pytest.mark.parametrize("full", [False, True])
def test_dead_dimensions_stay_finite(pair, full):
    train, test = (values.clone() for values in pair)
    train[:, 1] = 0
    p, dead_both = Gaussian.fit(train, covariance=True), Gaussian.fit(train * 1.5, covariance=True)
    assert kl(dead_both, p, full=full) < 10
    awake = paper_divergence(p, Gaussian.fit(test, covariance=True), full=full)
    assert 1e4 < awake < math.inf
    still = Gaussian.fit(torch.zeros(5, 4), covariance=True)
    assert paper_divergence(still, still, full=full) == pytest.approx(0, abs=1e-9)


def test_other_dimensions_are_refused():
    with pytest.raises(DiagnosticError, match="4 and 3 dimensions"):
        kl(Gaussian.fit(normal(9, 4)), Gaussian.fit(normal(9, 3)))
