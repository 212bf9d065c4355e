"""Stream orders have every image once, and are as correlated as they should be."""

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


@given(labels=st.lists(st.integers(-3, 5), max_size=60), seed=st.integers(0, 99), tenths=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_every_order_is_a_permutation(labels: list[int], seed: int, tenths: int) -> None:
    everything = list(range(len(labels)))
    for order in (
        orders.shuffled(len(labels), seed=seed),
        orders.by_class(labels, seed=seed),
        orders.dirichlet(labels, 0.1, seed=seed),
        orders.dirichlet(labels, 1e-9, seed=seed),
        orders.dirichlet(labels, 1e6, seed=seed),
        orders.markov(labels, 0.0, seed=seed),
        orders.markov(labels, tenths / 10, seed=seed),
    ):
        assert order.dtype == np.int64
        assert sorted(order.tolist()) == everything


def test_orders_depend_on_the_seed() -> None:
    for make in (
        lambda seed: orders.shuffled(100, seed=seed),
        lambda seed: orders.by_class(LABELS[:100], seed=seed),
        lambda seed: orders.dirichlet(LABELS[:100], 0.5, seed=seed),
        lambda seed: orders.markov(LABELS[:100], 0.5, seed=seed),
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
    assert repeats(orders.dirichlet(LABELS, 5e-324, seed=0)) > 0.3


@pytest.mark.parametrize("stay", [0.0, 0.1, 0.5, 0.95])
def test_markov_classes_stay_with_the_given_probability(stay: float) -> None:
    """Both halves, since a chain that runs out of images would no longer stay. Four standard errors."""
    classes = LABELS[orders.markov(LABELS, stay, seed=0)]
    stays = classes[1:] == classes[:-1]
    for half in np.array_split(stays, 2):
        assert half.mean() == pytest.approx(stay, abs=4 * np.sqrt(stay * (1 - stay) / len(half)))


@pytest.mark.parametrize("counts", [(500,) * 10, (6000, 3000, 1000), (9000, 1000)])
def test_every_part_of_a_markov_stream_has_the_shares_of_the_data(counts: tuple[int, ...]) -> None:
    """The stationary shares are those of the data, also if these differ, and the mean probability to stay is kept.

    A share π of n images of a chain with autocorrelation r has the variance π(1 − π)/n·(1 + r)/(1 − r); of m classes,
    r = (p − Σπ²)/(1 − Σπ²).
    """
    labels, stay = np.repeat(np.arange(len(counts)), counts), 0.9
    shares = np.array(counts) / len(labels)
    r = (stay - (shares**2).sum()) / (1 - (shares**2).sum())
    classes = labels[orders.markov(labels, stay, seed=0)]
    for quarter in np.array_split(classes, 4):
        error = np.sqrt(shares * (1 - shares) / len(quarter) * (1 + r) / (1 - r))
        assert (np.abs(np.bincount(quarter, minlength=len(counts)) / len(quarter) - shares) < 4 * error).all()
    assert (classes[1:] == classes[:-1]).mean() == pytest.approx(stay, abs=0.02)


def test_wrong_input() -> None:
    for concentration in (0, float("inf"), float("nan")):
        with pytest.raises(ShiftError, match="greater than 0"):
            orders.dirichlet(LABELS, concentration, seed=0)
    for stay in (-0.1, 1, float("nan")):
        with pytest.raises(ShiftError, match="must be a probability below 1"):
            orders.markov(LABELS, stay, seed=0)
    with pytest.raises(ShiftError, match="integers"):
        orders.by_class([0.5, 1.0], seed=0)
