"""Confidence and entropy against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from predbn.common import DiagnosticError
from predbn.diagnostics.confidence import Confidence
from predbn.metrics import Scores

from .models import normal


def test_mean_entropy_and_counts():
    logits = normal(300, 5, sd=3.0)
    whole, first, second = (Confidence() for _ in range(3))
    whole.update(logits)
    first.update(logits[:120].float())
    second.update(logits[120:].float())
    probabilities = scipy.special.softmax(logits.numpy(), 1)
    for confidence in (whole, first.merge(second)):
        assert confidence.count == 300
        assert confidence.mean == pytest.approx(probabilities.max(1).mean(), rel=1e-6)
        assert confidence.entropy == pytest.approx(scipy.stats.entropy(probabilities, axis=1).mean(), rel=1e-6)
    scores = Scores(5, bins=100)
    scores.update(logits.softmax(1), torch.zeros(300, dtype=torch.int64))
    assert whole.counts.tolist() == scores.reliability().count.tolist()


def test_one_column_is_binary_classification():
    logits = torch.tensor([[0.0], [3.0], [-3.0]])
    confidence = Confidence(bins=10)
    confidence.update(logits)
    sure = 1 / (1 + np.exp(-3.0))
    assert confidence.mean == pytest.approx((0.5 + 2 * sure) / 3)
    assert confidence.counts.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 2]


def test_certain_predictions_have_no_entropy():
    confidence = Confidence()
    confidence.update(torch.tensor([[1e6, 0.0]]))
    assert (confidence.mean, confidence.entropy) == (1.0, 0.0)
    assert confidence.counts[-1] == 1


def test_no_data_and_different_bins_are_refused():
    with pytest.raises(DiagnosticError, match="No predictions"):
        _ = Confidence().mean
    with pytest.raises(DiagnosticError, match="100 and 10 bins"):
        Confidence().merge(Confidence(bins=10))
