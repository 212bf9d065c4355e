"""Confidence and entropy against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from predbn.diagnostics import Confidence, DiagnosticError
from predbn.metrics import Scores

from .models import normal


def test_mean_entropy_and_counts():
    logits = normal(300, 5, sd=3.0)
    whole, first, second = (Confidence() for _ in range(3))
    whole.update(logits)
    first.update(logits[:120].float())
    second.update(logits[120:].float())
    probabilities = scipy.special.softmax(logits.numpy(), 1)
    for found in (whole, first.merge(second)):
        assert found.count == 300
        assert found.mean == pytest.approx(probabilities.max(1).mean(), rel=1e-6)
        assert found.entropy == pytest.approx(scipy.stats.entropy(probabilities, axis=1).mean(), rel=1e-6)
    scores = Scores(5, bins=100)
    scores.update(logits.softmax(1), torch.zeros(300, dtype=torch.int64))
    assert whole.counts.tolist() == scores.reliability().count.tolist()


def test_one_column_is_a_yes_or_no():
    logits = torch.tensor([[0.0], [3.0], [-3.0]])
    found = Confidence(bins=10)
    found.update(logits)
    sure = 1 / (1 + np.exp(-3.0))
    assert found.mean == pytest.approx((0.5 + 2 * sure) / 3)
    assert found.counts.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 2]


def test_certain_predictions_have_no_entropy():
    found = Confidence()
    found.update(torch.tensor([[1e6, 0.0]]))
    assert (found.mean, found.entropy) == (1.0, 0.0)
    assert found.counts[-1] == 1


def test_what_cannot_be_said():
    with pytest.raises(DiagnosticError, match="No predictions"):
        _ = Confidence().mean
    with pytest.raises(DiagnosticError, match="100 and 10 bins"):
        Confidence().merge(Confidence(bins=10))
