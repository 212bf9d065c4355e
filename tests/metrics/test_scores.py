"""Scores against the pure functions, and against themselves with other batches."""

import math
import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from predbn.metrics import MetricError, Scores, accuracy, brier, ece, nll, reliability

from .examples import cases, logits_and_labels, predictions, sums

UNIT = 2.0**-32


def scored(p, y, *, sizes=None, **options):
    scores = Scores(p.shape[1], **options)
    for part_p, part_y in zip(p.split(sizes or len(y)), y.split(sizes or len(y)), strict=True):
        scores.update(part_p, part_y)
    return scores


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("bins", [1, 10, 30])
def test_the_functions_give_the_same(case, bins):
    p, y = cases()[case]
    found = scored(p, y, sizes=4, bins=bins).compute()
    expected = {
        "accuracy": accuracy(p, y).item(),
        "nll": nll(p, y).item(),
        "brier": brier(p, y).item(),
        "ece": ece(p, y, bins=bins).item(),
        "confidence": p.double().amax(1).mean().item(),
    }
    if p.shape[1] > 5:
        expected["top5"] = accuracy(p, y, top=5).item()
    assert found == {name: pytest.approx(value, abs=UNIT) for name, value in expected.items()}


@pytest.mark.parametrize("case", cases())
def test_the_reliability_diagram_is_that_of_the_function(case):
    p, y = cases()[case]
    found, expected = scored(p, y).reliability(), reliability(p, y)
    assert torch.equal(found.edges, expected.edges)
    assert torch.equal(found.count, expected.count)
    torch.testing.assert_close(found.confidence, expected.confidence, rtol=0, atol=UNIT, equal_nan=True)
    torch.testing.assert_close(found.accuracy, expected.accuracy, equal_nan=True)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), batches=st.integers(1, 9), dtype=st.sampled_from([torch.float64, torch.float32]))
def test_any_batches_in_any_order_add_up_bit_for_bit(seed, batches, dtype):
    p, y = predictions(n=120, classes=17, seed=seed)
    p, random_numbers = p.to(dtype), random.Random(seed)
    order = torch.tensor(random_numbers.sample(range(120), 120))
    cuts = [0, *sorted(random_numbers.choices(range(121), k=batches - 1)), 120]
    scores = Scores(17)
    for start, end in pairwise(cuts):
        scores.update(p[order[start:end]], y[order[start:end]])
    assert sums(scores) == sums(scored(p, y))
    assert scores.compute() == scored(p, y).compute()
    assert scores.reliability().rows() == scored(p, y).reliability().rows()


def test_log_probabilities_keep_the_nll_finite_and_large_ones_do_not_overflow():
    logits, labels = logits_and_labels(n=64, scale=1e7)
    scores = Scores(10)
    scores.update(logits.softmax(1), labels, log_probabilities=logits.log_softmax(1))
    expected = torch.nn.functional.cross_entropy(logits, labels).item()
    assert expected > 1e6
    assert scores.compute()["nll"] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        ([[0.5, math.nan]], [0], "1 probabilities are NaN, below 0 or above 1; give the softmax"),
        ([[1.2, -0.2]], [0], "2 probabilities are NaN, below 0 or above 1"),
        ([[0.5, 0.1]], [0], "1 rows of probabilities do not sum to 1"),
        ([[0.5, 0.5]], [2], "1 labels are outside 0 to 1"),
        ([[0.5, 0.25, 0.25]], [0], "predictions have 3 classes where 2 are expected"),
    ],
)
def test_nothing_of_a_wrong_batch_is_added(p, y, message):
    scores = Scores(2)
    scores.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
    before = sums(scores)
    with pytest.raises(MetricError, match=message):
        scores.update(torch.tensor(p), torch.tensor(y))
    assert sums(scores) == before


def test_wrong_log_probabilities_raise():
    scores, p, y = Scores(2), torch.tensor([[0.5, 0.5]]), torch.tensor([0])
    with pytest.raises(MetricError, match="log-probabilities of labels are NaN or above 0"):
        scores.update(p, y, log_probabilities=torch.tensor([[3.0, -1.0]]))
    with pytest.raises(MetricError, match="log-probabilities have shape"):
        scores.update(p, y, log_probabilities=torch.zeros(1))


def test_what_cannot_be_done_raises():
    with pytest.raises(MetricError, match="nothing was scored yet"):
        Scores(3).compute()
    with pytest.raises(MetricError, match="classes=0"):
        Scores(0)
    with pytest.raises(MetricError, match="diagram_bins=0"):
        Scores(3, diagram_bins=0)
    full = scored(*predictions())
    full.count = 1 << 29
    with pytest.raises(MetricError, match="more than the 536870912"):
        full.update(*predictions())


def test_the_diagram_may_have_its_own_bins():
    p, y = logits_and_labels(200, 7)
    p = p.softmax(1)
    scores = scored(p, y, sizes=33, bins=30, diagram_bins=100)
    assert scores.compute() == scored(p, y, bins=30).compute()
    assert scores.reliability().rows() == scored(p, y, bins=100).reliability().rows()
    assert sums(scored(p, y, bins=30, diagram_bins=30)) == sums(scored(p, y, bins=30))
