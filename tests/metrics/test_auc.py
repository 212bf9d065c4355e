"""The area under the ROC curve against scikit-learn and a count of all pairs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from predbn.metrics import MetricError, auc


@given(st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 7.0]), st.booleans()), min_size=2, max_size=30))
def test_it_is_the_share_of_ordered_pairs(examples):
    scores, labels = (torch.tensor(column) for column in zip(*examples, strict=True))
    positives, negatives = scores[labels], scores[~labels]
    if len(positives) == 0 or len(negatives) == 0:
        with pytest.raises(MetricError, match=f"none of label {int(len(positives) == 0)}"):
            auc(scores, labels)
        return
    wins = [(p > n) + (p == n) / 2 for p in positives.tolist() for n in negatives.tolist()]
    assert auc(scores, labels).item() == pytest.approx(sum(wins) / len(wins), abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_scikit_learn_gives_the_same(dtype):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (2000,), generator=generator)
    scores = (torch.randn(2000, generator=generator) + labels).sigmoid().to(dtype)
    assert auc(scores, labels).item() == pytest.approx(roc_auc_score(labels, scores.double()), abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (torch.tensor([0.1, math.nan]), [0, 1], "1 scores are NaN"),
        (torch.tensor([0.1, 0.2]), [0, 2], "1 labels are neither 0 nor 1"),
        (torch.tensor([[0.1, 0.2]]), [0], r"give \[n\]"),
        (torch.tensor([0.1, 0.2]), [0], "labels have shape"),
    ],
)
def test_says_what_is_wrong(scores, labels, message):
    with pytest.raises(MetricError, match=message):
        auc(scores, torch.tensor(labels))
