"""Distances against scipy's, divergences against scipy's densities and torch."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from predbn.common import DiagnosticError
from predbn.diagnostics import Distribution, distance_unit, paper_divergence, wasserstein
from predbn.diagnostics.distribution import Bins

from .models import normal


def histograms(*samples: torch.Tensor, inside: int = 64) -> list[Distribution]:
    bins = Bins.over(samples[0].amin(0), samples[0].amax(0), inside)
    return [Distribution.of(values, bins=bins) for values in samples]


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (0.3, 1.0), (0.0, 2.5), (-4.0, 0.2), (40.0, 3.0)])
def test_the_distance_is_scipys(mean, sd):
    reference, other = normal(700, 3, seed=1), normal(500, 3, mean=mean, sd=sd, seed=2)
    distance = wasserstein(*histograms(reference, other))
    expected = [scipy.stats.wasserstein_distance(reference[:, c].numpy(), other[:, c].numpy()) for c in range(3)]
    width = 7 / 64
    torch.testing.assert_close(distance, torch.tensor(expected).double(), rtol=1e-3, atol=width / 4)


def test_constant_channels_do_not_dominate_the_others():
    values = normal(500, 4, sd=2.0)
    values[:, 3] = 1
    unit = distance_unit(Distribution.of(values))
    torch.testing.assert_close(unit[:3], values.std(0, correction=0)[:3])
    assert unit[3] == pytest.approx(0.1 * float(values.var(0, correction=0).mean().sqrt()))
    assert distance_unit(Distribution.of(torch.zeros(3, 2))).tolist() == [1, 1]


def test_different_bins_and_dimensions_are_refused():
    with pytest.raises(DiagnosticError, match="got 4 and 3 dimensions"):
        paper_divergence(Distribution.of(normal(9, 4)), Distribution.of(normal(9, 3)))
    with pytest.raises(DiagnosticError, match="same bins"):
        wasserstein(histograms(normal(9, 1))[0], histograms(normal(9, 1, seed=1))[0])


@pytest.fixture
def pair():
    mix = normal(4, 4, seed=3)
    return normal(400, 4, seed=1) @ mix, 0.7 + 1.3 * normal(300, 4, seed=2) @ mix.T


def scipy_fit(values: torch.Tensor):
    return scipy.stats.multivariate_normal(values.numpy().mean(0), np.diag(values.numpy().var(0)))


def test_the_papers_sum_over_test_points_is_the_closed_form(pair):
    train, test = pair
    points = scipy_fit(test).logpdf(test.numpy()) - scipy_fit(train).logpdf(test.numpy())
    for covariance in (False, True):
        p, q = (Distribution.of(values, covariance=covariance) for values in pair)
        assert paper_divergence(p, q) == pytest.approx(points.mean(), rel=1e-10)


def test_dead_dimensions_stay_finite(pair):
    train, test = (values.clone() for values in pair)
    train[:, 1] = 0
    p, dead_in_both = Distribution.of(train), Distribution.of(train * 1.5)
    assert paper_divergence(p, dead_in_both) < 10
    assert 1e4 < paper_divergence(p, Distribution.of(test)) < math.inf
    constant = Distribution.of(torch.zeros(5, 4))
    assert paper_divergence(constant, constant) == pytest.approx(0, abs=1e-9)
