"""Stream orders have every image once, and are as correlated as they should be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predbn.shifts import ShiftError, orders

LABELS = np.arange(5000) % 10


def repeats(order: np.ndarray) -> float:
    """How often an image has the class of the one before it."""
    classes = LABELS[order]
    return float((classes[1:] == classes[:-1]).mean())


@given(labels=st.lists(st.integers(-3, 5), max_size=60), seed=st.integers(0, 99), slots=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_every_order_is_a_permutation(labels: list[int], seed: int, slots: int) -> None:
    everything = list(range(len(labels)))
    for order in (
        orders.shuffled(len(labels), seed=seed),
        orders.by_class(labels, seed=seed),
        orders.dirichlet(labels, 0.1, seed=seed),
        orders.dirichlet(labels, 1e-9, seed=seed, slots=slots),
        orders.dirichlet(labels, 1e6, seed=seed, slots=slots),
    ):
        assert order.dtype == np.int64
        assert sorted(order.tolist()) == everything


def test_orders_depend_on_the_seed() -> None:
    for make in (
        lambda seed: orders.shuffled(100, seed=seed),
        lambda seed: orders.by_class(LABELS[:100], seed=seed),
        lambda seed: orders.dirichlet(LABELS[:100], 0.5, seed=seed),
    ):
        assert np.array_equal(make(0), make(0))
        assert not np.array_equal(make(0), make(1))


def test_shuffled_is_uncorrelated_and_by_class_is_sorted() -> None:
    assert repeats(orders.shuffled(5000, seed=0)) == pytest.approx(0.1, abs=0.02)
    assert (np.diff(LABELS[orders.by_class(LABELS, seed=0)]) >= 0).all()


def test_dirichlet_goes_from_sorted_to_shuffled() -> None:
    frequencies = [repeats(orders.dirichlet(LABELS, c, seed=0)) for c in (1e-6, 0.1, 1.0, 1e6)]
    assert frequencies == sorted(frequencies, reverse=True)
    assert frequencies[-1] == pytest.approx(0.1, abs=0.02)
    assert frequencies[0] > 0.3


def test_dirichlet_shares_have_their_variance() -> None:
    """A share of Dirichlet(a, …, a) over k slots has variance (1/k)(1 − 1/k)/(ka + 1)."""
    labels = np.repeat(np.arange(400), 100)
    order = orders.dirichlet(labels, 0.5, seed=0, slots=2)
    first = orders.dirichlet(labels, 1e6, seed=0, slots=2)
    halves = [np.bincount(labels[o[: len(o) // 2]], minlength=400) / 100 for o in (order, first)]
    assert np.var(halves[0]) == pytest.approx(0.25 / 2, rel=0.2)
    assert np.var(halves[1]) < 0.01


def test_wrong_input() -> None:
    with pytest.raises(ShiftError, match="greater than 0"):
        orders.dirichlet(LABELS, 0, seed=0)
    with pytest.raises(ShiftError, match="at least 1"):
        orders.dirichlet(LABELS, 1, seed=0, slots=0)
    with pytest.raises(ShiftError, match="integers"):
        orders.by_class([0.5, 1.0], seed=0)
    with pytest.raises(ShiftError, match="fewer than 0"):
        orders.shuffled(-1, seed=0)
