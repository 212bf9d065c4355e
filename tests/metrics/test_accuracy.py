"""Accuracy against a stable sort and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, top_k_accuracy_score

from predbn.metrics import MetricError, accuracy

from .examples import cases, predictions


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("top", [1, 2, 5])
def test_a_stable_sort_gives_the_same(case, top):
    p, y = cases()[case]
    first = np.argsort(-p.double().numpy(), axis=1, kind="stable")[:, :top]
    wanted = np.mean([label in row for label, row in zip(y.tolist(), first.tolist(), strict=True)])
    assert accuracy(p, y, top=top).item() == wanted


def test_scikit_learn_gives_the_same():
    p, y = predictions()
    assert accuracy(p, y).item() == accuracy_score(y, p.argmax(1))
    assert accuracy(p, y, top=3).item() == pytest.approx(top_k_accuracy_score(y, p, k=3), abs=1e-15)


def test_refuses_no_top():
    with pytest.raises(MetricError, match="top=0; give 1 or more"):
        accuracy(torch.ones(1, 1), torch.zeros(1, dtype=torch.long), top=0)
