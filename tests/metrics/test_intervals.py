"""Intervals against scipy, normal theory, their own definition, and how often they cover the truth."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap, ttest_1samp

from predbn.metrics import MetricError, bootstrap_difference, bootstrap_mean, t_mean, t_ratio


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


def test_pairing_removes_what_both_share():
    hard = values(95)
    gain = 0.05 + 0.01 * np.random.default_rng(2).normal(size=95)
    paired = bootstrap_difference(hard + gain, hard)
    assert 0.045 < paired.low < paired.estimate < paired.high < 0.055
    assert paired.estimate == pytest.approx(gain.mean())
    assert paired == bootstrap_mean((hard + gain) - hard)
    assert bootstrap_mean(hard).high - bootstrap_mean(hard).low > 10 * (paired.high - paired.low)


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


RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("count", [2, 5, 19, 5000])
def test_the_interval_of_a_mean_is_scipys(count):
    values = RANDOM.normal(0.3, 2.0, count)
    found = t_mean(values)
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.estimate, found.low, found.high) == pytest.approx((values.mean(), expected.low, expected.high))


@pytest.mark.parametrize("count", [5, 19])
def test_a_bound_of_a_ratio_is_where_the_test_of_the_difference_changes_its_mind(count):
    denominator = RANDOM.normal(2.0, 0.5, count)
    numerator = 0.3 * denominator + RANDOM.normal(0.0, 0.1, count)
    found = t_ratio(numerator, denominator)
    for bound in (found.low, found.high):
        assert ttest_1samp(numerator - bound * denominator, 0).pvalue == pytest.approx(0.05)
    assert found.low < found.estimate == numerator.mean() / denominator.mean() < found.high


def test_there_is_no_interval_for_a_single_value_or_a_ratio_to_nothing():
    assert (t_mean([1.0]).low, t_mean([1.0]).high) == (-math.inf, math.inf)
    for pair in (([1.0], [2.0]), ([1.0, 1.1, 0.9], [-1.0, 0.1, 1.0])):
        assert (t_ratio(*pair).low, t_ratio(*pair).high) == (-math.inf, math.inf)
    with pytest.raises(MetricError, match="2 values are to be paired with 3"):
        t_ratio([1.0, 2.0], [1.0, 2.0, 3.0])


def test_over_five_draws_it_covers_the_truth_as_often_as_it_says_and_the_bootstrap_does_not():
    draws = np.random.default_rng(0).normal(size=(2_000, 5))
    covered = np.mean([t_mean(each).low < 0 < t_mean(each).high for each in draws])
    assert covered == pytest.approx(0.95, abs=0.012)
    resampled = [bootstrap_mean(each, resamples=500) for each in draws[:500]]
    assert np.mean([each.low < 0 < each.high for each in resampled]) < 0.88
