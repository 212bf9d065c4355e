"""Accuracy, NLL and Brier score against scikit-learn and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, top_k_accuracy_score

from predbn.metrics import MetricError, accuracy, binary, brier, nll
from predbn.metrics.classification import brier_units

from .examples import cases, logits_and_labels, predictions


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("top", [1, 2, 5])
def test_accuracy_is_that_of_a_stable_sort(case, top):
    p, y = cases()[case]
    first = np.argsort(-p.double().numpy(), axis=1, kind="stable")[:, :top]
    expected = np.mean([label in row for label, row in zip(y.tolist(), first.tolist(), strict=True)])
    assert accuracy(p, y, top=top).item() == expected


def test_accuracy_is_that_of_scikit_learn():
    p, y = predictions()
    assert accuracy(p, y).item() == accuracy_score(y, p.argmax(1))
    assert accuracy(p, y, top=3).item() == pytest.approx(top_k_accuracy_score(y, p, k=3), abs=1e-15)


def test_top_must_be_positive():
    with pytest.raises(MetricError, match="top=0; give 1 or more"):
        accuracy(torch.ones(1, 1), torch.zeros(1, dtype=torch.long), top=0)


def loop_nll(p, y):
    own = [p.double()[i, label].item() for i, label in enumerate(y.tolist())]
    return sum(-math.log(each) if each else math.inf for each in own) / len(own)


def loop_brier(p, y):
    rows = zip(p.double().tolist(), y.tolist(), strict=True)
    return sum((each - (c == label)) ** 2 for row, label in rows for c, each in enumerate(row)) / len(y)


@pytest.mark.parametrize("case", cases())
def test_nll_and_brier_are_those_of_a_loop(case):
    p, y = cases()[case]
    assert nll(p, y).item() == pytest.approx(loop_nll(p, y), rel=1e-13, abs=1e-13)
    assert brier(p, y).item() == pytest.approx(loop_brier(p, y), rel=1e-13, abs=1e-13)
    assert brier(p, y, per_class=True).item() == pytest.approx(loop_brier(p, y) / p.shape[1], rel=1e-13, abs=1e-13)
    assert nll(p, y, reduction="none").mean() == nll(p, y)
    assert brier(p, y, reduction="none").shape == y.shape
    in_units = brier_units(p.double(), y).double() / 2**32
    torch.testing.assert_close(in_units, brier(p, y, reduction="none"), rtol=0, atol=2.0**-32)


def test_nll_and_brier_are_those_of_scikit_learn():
    p, y = predictions()
    assert nll(p, y).item() == pytest.approx(log_loss(y, p), rel=1e-12)
    assert brier(p, y).item() == pytest.approx(
        brier_score_loss(y, p, labels=list(range(10)), scale_by_half=False), rel=1e-12
    )


def test_logits_stay_finite_where_probabilities_round_to_zero():
    logits, labels = torch.tensor([[0.0, 2000.0], [0.0, 1.0]]), torch.tensor([0, 1])
    assert nll(logits.softmax(1), labels).item() == math.inf
    assert nll(logits, labels, from_logits=True).item() == pytest.approx((2000 + math.log(1 + math.exp(-1))) / 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_logits_of_any_dtype_are_scored_in_double(dtype):
    logits, labels = logits_and_labels()
    narrow = logits.to(dtype)
    expected = torch.nn.functional.cross_entropy(narrow.double(), labels)
    torch.testing.assert_close(nll(narrow, labels, from_logits=True), expected)


def test_a_class_masked_with_minus_infinity():
    logits = torch.tensor([[0.0, 0.0, -math.inf]])
    assert nll(logits, torch.tensor([0]), from_logits=True).item() == pytest.approx(math.log(2))
    assert nll(logits, torch.tensor([2]), from_logits=True).item() == math.inf


@pytest.mark.parametrize("shape", [(50,), (50, 1)])
def test_one_column_is_two_classes(shape):
    p = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    y = (torch.arange(50) % 3 == 0).long()
    two = binary(p)
    assert two.shape == (50, 2)
    assert brier(two, y, per_class=True).item() == pytest.approx(brier_score_loss(y, p.reshape(-1)), rel=1e-6)
    assert nll(two, y).item() == pytest.approx(log_loss(y, p.reshape(-1)), rel=1e-5)


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        (torch.tensor([[0.5, math.nan]]), [0], "1 probabilities are NaN, below 0 or above 1"),
        (torch.tensor([[1.5, -0.5]]), [0], "2 probabilities are NaN, below 0 or above 1"),
        (torch.tensor([[0.5, 0.2]]), [0], "1 rows of probabilities do not sum to 1"),
        (torch.tensor([[0.5, 0.5]]), [2], "1 labels are outside 0 to 1"),
        (torch.tensor([[0.5, 0.5]]), [-1], "1 labels are outside 0 to 1"),
        (torch.tensor([[0.5, 0.5]]), [0, 1], "labels have shape"),
        (torch.tensor([[0.5, 0.5]]), [0.0], "labels are float32; give integers"),
        (torch.tensor([[1, 0]]), [0], "predictions are int64; give floating point"),
        (torch.tensor([0.5]), [0], "predbn.metrics.binary"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "no example"),
    ],
)
def test_says_what_is_wrong(p, y, message):
    for metric in (nll, brier):
        with pytest.raises(MetricError, match=message):
            metric(p, torch.as_tensor(y))


def test_refuses_logits_that_are_not_numbers():
    for bad in (math.nan, math.inf):
        with pytest.raises(MetricError, match="1 rows of logits hold NaN or infinity"):
            nll(torch.tensor([[0.0, bad]]), torch.tensor([0]), from_logits=True)
    with pytest.raises(MetricError, match="1 labels are outside 0 to 1"):
        nll(torch.zeros(1, 2), torch.tensor([2]), from_logits=True)


def test_refuses_other_shapes_and_reductions():
    with pytest.raises(MetricError, match=r"give \[n\] or \[n, 1\]"):
        binary(torch.rand(3, 2))
    with pytest.raises(MetricError, match="int64"):
        binary(torch.tensor([1, 0]))
    with pytest.raises(MetricError, match="'mean' or 'none'"):
        brier(*predictions(), reduction="sum")
