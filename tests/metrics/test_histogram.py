"""The streaming AUC and equal-mass bins against the exact ones."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.metrics import MetricError, ScoreHistogram, auc, ece

from .examples import confidences_and_right, predictions


def scores_and_labels(n=3000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (n,), generator=generator)
    return (torch.randn(n, generator=generator) + labels).sigmoid(), labels


def histogram(scores, labels, *, size=None, **options):
    made = ScoreHistogram(**options)
    for part in zip(scores.split(size or len(labels)), labels.split(size or len(labels)), strict=True):
        made.update(*part)
    return made


@given(cells=st.sampled_from([1, 3, 64, 1000, 1 << 16]), seed=st.integers(0, 20))
def test_the_exact_area_is_within_the_stated_error(cells, seed):
    scores, labels = scores_and_labels(500, seed)
    found = histogram(scores, labels, size=77, cells=cells)
    assert abs(found.auc() - auc(scores, labels).item()) <= found.auc_error() + 1e-15
    if cells == 1:
        assert (found.auc(), found.auc_error()) == (0.5, 0.5)


def test_fine_cells_are_as_good_as_exact():
    scores, labels = scores_and_labels()
    found = histogram(scores, labels)
    assert found.auc_error() < 1e-5
    assert found.auc() == pytest.approx(auc(scores, labels).item(), abs=1e-5)


def test_cells_closed_on_the_right_hold_scores_on_a_grid_exactly():
    labels = torch.randint(2, (400,), generator=torch.Generator().manual_seed(0))
    scores = torch.randint(0, 257, (400,), generator=torch.Generator().manual_seed(1)) / 256
    scores = scores[scores > 0]
    labels = labels[: len(scores)]
    found = histogram(scores, labels, cells=256)
    assert found.auc() == auc(scores, labels).item()


@pytest.mark.parametrize("bins", [1, 3, 10, 40])
def test_equal_mass_bins_are_the_exact_ones_where_cells_separate_the_scores(bins):
    p, y = predictions(n=211)
    confidences, right = (torch.from_numpy(each) for each in confidences_and_right(p, y))
    found = histogram(confidences, right, cells=1 << 17)
    assert found.ece(bins=bins) == pytest.approx(ece(p, y, bins=bins, equal_mass=True).item(), abs=1e-9)
    assert found.reliability(bins=bins).count.sum() == 211


def test_shards_add_up_bit_for_bit():
    scores, labels = scores_and_labels()
    parts = [histogram(s, y, size=10) for s, y in zip(scores.split(700), labels.split(700), strict=True)]
    merged = parts[3].merge(parts[0]).merge(parts[4].merge(parts[2])).merge(parts[1])
    whole = histogram(scores, labels)
    assert merged.state() == whole.state()
    assert ScoreHistogram.from_state(json.loads(json.dumps(merged.state()))).auc() == whole.auc()


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.5, float("nan")], [0, 1], "1 scores are NaN, below 0 or above 1"),
        ([0.5, 1.5], [0, 1], "1 scores are NaN, below 0 or above 1"),
        ([0.5, 0.5], [0, 2], "1 labels are neither 0 nor 1"),
        ([[0.5]], [0], r"give \[n\]"),
        ([0.5], [0, 1], "labels have shape"),
    ],
)
def test_says_what_is_wrong(scores, labels, message):
    with pytest.raises(MetricError, match=message):
        ScoreHistogram().update(torch.tensor(scores), torch.tensor(labels))


def test_one_label_has_no_area():
    found = histogram(torch.tensor([0.1, 0.2]), torch.tensor([1, 1]))
    for ask in (found.auc, found.auc_error):
        with pytest.raises(MetricError, match="none of label 0"):
            ask()
    with pytest.raises(MetricError, match="nothing was scored"):
        ScoreHistogram().auc()
