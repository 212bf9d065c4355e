"""Bootstrap intervals against scipy, normal theory and their own definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap

from predbn.metrics import MetricError, bootstrap_difference, bootstrap_mean, bootstrap_ratio


def values(n=60, seed=0):
    return np.random.default_rng(seed).gamma(2.0, size=n)


def test_scipy_gives_nearly_the_same():
    theirs = bootstrap((values(),), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    ours = bootstrap_mean(values(), resamples=20_000)
    assert ours.estimate == values().mean()
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_the_draws_are_those_of_numpys_generator():
    """Published intervals were computed with these draws, so they must stay the same, bit for bit."""
    x = values()
    means = x[np.random.default_rng(5).integers(len(x), size=(2000, len(x)))].mean(1)
    found = bootstrap_mean(x, resamples=2000, seed=5)
    assert [found.low, found.high] == np.quantile(means, [(1 - 0.95) / 2, (1 + 0.95) / 2]).tolist()


def test_many_values_give_the_normal_interval():
    x = values(5000)
    half = 1.6449 * x.std() / np.sqrt(len(x))
    found = bootstrap_mean(x, level=0.9, resamples=4000)
    assert (found.low, found.high) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.1 * half)


def test_pairing_removes_what_both_share():
    hard = values(95)
    gain = 0.05 + 0.01 * np.random.default_rng(2).normal(size=95)
    paired = bootstrap_difference(hard + gain, hard)
    assert 0.045 < paired.low < paired.estimate < paired.high < 0.055
    assert paired.estimate == pytest.approx(gain.mean())
    assert paired == bootstrap_mean((hard + gain) - hard)
    assert bootstrap_mean(hard).high - bootstrap_mean(hard).low > 10 * (paired.high - paired.low)


def test_the_seed_decides():
    assert bootstrap_mean(values(), seed=3) == bootstrap_mean(torch.from_numpy(values()), seed=3)
    assert bootstrap_mean(values(), seed=3) != bootstrap_mean(values(), seed=4)


def test_values_that_do_not_vary():
    for x in ([0.25], [0.25] * 7):
        found = bootstrap_mean(x, resamples=50)
        assert (found.estimate, found.low, found.high) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": []}, "one or more numbers"),
        ({"values": [[1.0]]}, "one or more numbers"),
        ({"values": [1.0, float("nan")]}, "NaN or infinity"),
        ({"values": [1.0], "level": 95}, "level=95; give a share"),
        ({"values": [1.0], "resamples": 0}, "resamples=0"),
    ],
)
def test_says_what_is_wrong(arguments, message):
    with pytest.raises(MetricError, match=message):
        bootstrap_mean(**arguments)


def test_pairs_need_as_many_of_both():
    with pytest.raises(MetricError, match="2 values are to be paired with 1"):
        bootstrap_difference([1.0, 2.0], [1.0])
    with pytest.raises(MetricError, match="2 values are to be paired with 1"):
        bootstrap_ratio([1.0, 2.0], [1.0])


def test_a_ratio_of_means_is_scipys():
    a, b = values(seed=1), 2 + values(seed=2)

    def ratio(x, y, axis):
        return x.mean(axis) / y.mean(axis)

    theirs = bootstrap((a, b), ratio, n_resamples=20_000, method="percentile", paired=True, rng=1).confidence_interval
    ours = bootstrap_ratio(a, b, resamples=20_000)
    assert ours.estimate == a.mean() / b.mean()
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)
    exact = bootstrap_ratio(0.1 * b, b)
    assert (exact.low, exact.high) == pytest.approx((0.1, 0.1))


def test_there_is_no_share_of_nothing():
    with pytest.raises(MetricError, match="mean 0"):
        bootstrap_ratio([1.0, 1.0], [1.0, -1.0])
