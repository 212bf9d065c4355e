"""The AUC of a stream against the exact one of scikit-learn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from predbn.metrics import MetricError, ScoreHistogram


def scores_and_labels(n=3000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (n,), generator=generator)
    return (torch.randn(n, generator=generator) + labels).sigmoid(), labels


def histogram(scores, labels, *, size=None, **options):
    found = ScoreHistogram(**options)
    for batch in zip(scores.split(size or len(labels)), labels.split(size or len(labels)), strict=True):
        found.update(*batch)
    return found


def largest_error(scores, labels, cells):
    """Half the share of pairs of one positive and one negative that are in one bin."""
    bins = (scores.double() * cells).ceil().clamp_min(1)
    positives, negatives = bins[labels == 1], bins[labels == 0]
    return (positives[:, None] == negatives).double().mean().item() / 2


@settings(max_examples=10)
@given(cells=st.sampled_from([1, 3, 64, 1000, 1 << 16]), seed=st.integers(0, 20))
def test_a_histogram_is_as_exact_as_it_says(cells, seed):
    scores, labels = scores_and_labels(500, seed)
    found = histogram(scores, labels, size=77, cells=cells).auc()
    assert abs(found - roc_auc_score(labels, scores)) <= largest_error(scores, labels, cells) + 1e-12
    if cells == 1:
        assert found == 0.5


def test_bins_closed_on_the_right_hold_scores_on_a_grid_exactly():
    labels = torch.randint(2, (400,), generator=torch.Generator().manual_seed(0))
    scores = torch.randint(0, 257, (400,), generator=torch.Generator().manual_seed(1)) / 256
    scores = scores[scores > 0]
    labels = labels[: len(scores)]
    assert histogram(scores, labels, cells=256).auc() == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_batches_in_any_order_give_the_same_bits():
    scores, labels = scores_and_labels()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))
    assert histogram(scores[order], labels[order], size=70).auc() == histogram(scores, labels).auc()


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.5, math.nan], [0, 1], "1 scores are NaN"),
        ([0.5, 0.5], [0, 2], "1 labels are neither 0 nor 1"),
        ([[0.5]], [0], r"give \[n\]"),
        ([0.5], [0, 1], "labels have shape"),
    ],
)
def test_says_what_is_wrong(scores, labels, message):
    with pytest.raises(MetricError, match=message):
        ScoreHistogram().update(torch.tensor(scores), torch.tensor(labels))


def test_one_label_has_no_area():
    with pytest.raises(MetricError, match="none of label 0"):
        histogram(torch.tensor([0.1, 0.2]), torch.tensor([1, 1])).auc()
    with pytest.raises(MetricError, match="nothing was scored"):
        ScoreHistogram().auc()
