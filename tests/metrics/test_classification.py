"""Accuracy, NLL and Brier score against plain loops."""

import math

import numpy as np
import pytest
import torch

from predbn.metrics import MetricError, accuracy, brier, ece, nll
from predbn.metrics.classification import brier_units

from .examples import cases


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("top", [1, 2, 5])
def test_accuracy_is_that_of_a_stable_sort(case, top):
    p, y = cases()[case]
    first = np.argsort(-p.double().numpy(), axis=1, kind="stable")[:, :top]
    expected = np.mean([label in row for label, row in zip(y.tolist(), first.tolist(), strict=True)])
    assert accuracy(p, y, top=top).item() == expected


def loop_nll(p, y):
    of_labels = [p.double()[i, label].item() for i, label in enumerate(y.tolist())]
    return sum(-math.log(value) if value else math.inf for value in of_labels) / len(of_labels)


def loop_brier(p, y):
    rows = zip(p.double().tolist(), y.tolist(), strict=True)
    return sum((value - (c == label)) ** 2 for row, label in rows for c, value in enumerate(row)) / len(y)


@pytest.mark.parametrize("case", cases())
def test_nll_and_brier_are_those_of_a_loop(case):
    p, y = cases()[case]
    assert nll(p, y).item() == pytest.approx(loop_nll(p, y), rel=1e-13, abs=1e-13)
    assert brier(p, y).item() == pytest.approx(loop_brier(p, y), rel=1e-13, abs=1e-13)
    in_units = brier_units(p.double(), y).double() / 2**32
    torch.testing.assert_close(in_units.mean(), brier(p, y), rtol=0, atol=2.0**-32)


def test_counts_must_be_positive():
    for metric, name in ((accuracy, "top"), (ece, "bins")):
        with pytest.raises(MetricError, match=f"{name}=0; give 1 or more"):
            metric(torch.ones(1, 1), torch.zeros(1, dtype=torch.long), **{name: 0})


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
        (torch.tensor([0.5]), [0], "predictions have shape"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "no example"),
    ],
)
def test_says_what_is_wrong(p, y, message):
    for metric in (nll, brier):
        with pytest.raises(MetricError, match=message):
            metric(p, torch.as_tensor(y))
