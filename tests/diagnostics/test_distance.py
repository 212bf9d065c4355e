"""Distances against scipy's, and the noise against what chance gives."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import wasserstein_distance

from predbn.diagnostics import Bins, DiagnosticError, Gaussian, Histogram, noise, unit, wasserstein

from .models import normal


def histograms(*samples: torch.Tensor, inside: int = 64) -> list[Histogram]:
    bins = Bins.over(samples[0].amin(0), samples[0].amax(0), inside)
    found = [Histogram(bins) for _ in samples]
    for histogram, values in zip(found, samples, strict=True):
        histogram.update(values)
    return found


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (0.3, 1.0), (0.0, 2.5), (-4.0, 0.2), (40.0, 3.0)])
def test_the_distance_is_scipys(mean, sd):
    reference, other = normal(700, 3, seed=1), normal(500, 3, mean=mean, sd=sd, seed=2)
    found = wasserstein(*histograms(reference, other))
    wanted = [wasserstein_distance(reference[:, c].numpy(), other[:, c].numpy()) for c in range(3)]
    width = 7 / 64
    torch.testing.assert_close(found, torch.tensor(wanted).double(), rtol=1e-3, atol=width / 4)


def test_a_shift_is_as_long_as_it_is():
    values = normal(1000, 2)
    for delta in (0.5, 3.0, 30.0):
        found = wasserstein(*histograms(values, values + delta))
        torch.testing.assert_close(found, torch.full((2,), delta).double(), rtol=1e-2, atol=1e-2)
    assert wasserstein(*histograms(values, values)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("n", "m"), [(200, 200), (1000, 100)])
def test_the_noise_is_what_chance_gives_on_average(n, m):
    reference = normal(n, 400, seed=1)
    one, other = histograms(reference, normal(m, 400, seed=2))
    assert float(noise(one, m).mean()) == pytest.approx(float(wasserstein(one, other).mean()), rel=0.1)


def test_still_channels_do_not_drown_the_others():
    values = normal(500, 4, sd=2.0)
    values[:, 3] = 1
    found = unit(Gaussian.fit(values))
    torch.testing.assert_close(found[:3], values.std(0, correction=0)[:3])
    assert found[3] == pytest.approx(0.1 * float(values.var(0, correction=0).mean().sqrt()))
    assert unit(Gaussian.fit(torch.zeros(3, 2))).tolist() == [1, 1]


def test_other_bins_are_refused():
    with pytest.raises(DiagnosticError, match="other bins"):
        wasserstein(histograms(normal(9, 1))[0], histograms(normal(9, 1, seed=1))[0])
