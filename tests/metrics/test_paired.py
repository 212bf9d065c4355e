"""Paired intervals, against the paired t-test and against slow references."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t as student
from scipy.stats import ttest_rel

from predbn.metrics import MetricError, consecutive_groups, ece, paired_ece_interval, paired_interval


def values(count: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.random.default_rng(seed).normal(size=(2, count))
    return first + 0.3, second


def test_without_groups_it_is_the_paired_t_test():
    first, second = values()
    found = paired_interval(first, second, level=0.9)
    expected = ttest_rel(first, second).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.estimate == pytest.approx((first - second).mean())


def test_groups_of_one_size_are_a_t_test_of_their_means():
    first, second = values()
    groups = np.arange(60) // 5
    means = [side.reshape(12, 5).mean(1) for side in (first, second)]
    expected = ttest_rel(*means).confidence_interval(0.95)
    found = paired_interval(first, second, groups=groups)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_groups_of_different_sizes_follow_the_equation():
    first, second = values()
    groups = np.array([0] * 7 + [5] * 30 + [2] * 23)
    difference = first - second
    mean = difference.mean()
    squares = sum((difference[groups == group] - mean).sum() ** 2 for group in (0, 5, 2))
    margin = student.ppf(0.975, 2) * math.sqrt(3 / 2 * squares) / 60
    found = paired_interval(first, second, groups=groups)
    assert (found.low, found.high) == pytest.approx((mean - margin, mean + margin))


def test_one_group_has_no_interval():
    found = paired_interval([1.0, 0.0], [0.0, 0.0], groups=np.zeros(2, dtype=np.int64))
    assert (found.estimate, found.low, found.high) == (0.5, -math.inf, math.inf)


def test_intervals_hold_as_often_as_they_say():
    """Batches share an error: intervals over examples would be far too narrow."""
    random = np.random.default_rng(1)
    groups = np.repeat(np.arange(25), 8)
    held = 0
    for _ in range(400):
        shared = random.normal(size=25)[groups]
        found = paired_interval(shared + random.normal(size=200), np.zeros(200), groups=groups)
        held += found.low <= 0 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_there_are_twenty_groups_if_that_is_possible():
    assert len(np.unique(consecutive_groups(1000, 20))) == 50
    assert len(np.unique(consecutive_groups(1000, 500))) == 20
    assert len(np.unique(consecutive_groups(7, 100))) == 7
    assert consecutive_groups(4, 1).tolist() == [0, 1, 2, 3]


def test_wrong_arguments_are_refused():
    with pytest.raises(MetricError, match="2 values are to be paired with 1"):
        paired_interval([0.0, 1.0], [0.0])
    with pytest.raises(MetricError, match="level=95"):
        paired_interval([0.0, 1.0], [0.0, 1.0], level=95)


def ece_of(confidences: np.ndarray, hits: np.ndarray) -> float:
    """Bin by bin, as the ECE is defined."""
    bins = np.ceil(10 * confidences).astype(int)
    gaps = (abs((confidences - hits)[bins == number].sum()) for number in range(1, 11))
    return sum(gaps) / len(hits)


def test_the_interval_of_the_ece_is_around_the_difference_of_the_two():
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (300,), generator=random)
    sides, eces = [], []
    for scale in (4.0, 1.0):
        p = (scale * torch.randn(300, 3, generator=random)).softmax(1).double()
        sides.append((p.amax(1).numpy(), (p.argmax(1) == labels).double().numpy()))
        eces.append(float(ece(p, labels)))
    found = paired_ece_interval(*sides, groups=np.arange(300) // 3)
    assert found.estimate == pytest.approx(eces[0] - eces[1])
    assert 0 < found.low < found.estimate < found.high
    resampled = []
    for seed in range(300):
        drawn = (np.random.default_rng(seed).integers(0, 100, 100)[:, None] * 3 + np.arange(3)).ravel()
        first, second = (ece_of(confidences[drawn], hits[drawn]) for confidences, hits in sides)
        resampled.append(first - second)
    assert (found.low, found.high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=0.02)
