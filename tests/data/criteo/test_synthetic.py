"""Synthetic rows have the shape of Criteo's and known probabilities, and do not depend on how many are made at once."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from predbn.data.criteo import synthetic_rows
from predbn.data.criteo.columns import MISSING_NUMBER


@pytest.fixture(scope="module")
def rows():
    return synthetic_rows(20_000, seed=0)


def test_a_row_follows_from_seed_and_index(rows):
    few = synthetic_rows(7, seed=0, first=100)
    assert np.array_equal(few.table, rows.table[100:107])
    assert np.array_equal(few.probability, rows.probability[100:107])
    assert not np.array_equal(synthetic_rows(7, seed=1, first=100).table, few.table)


def test_clicks_come_with_the_stated_probability(rows):
    bins = np.digitize(rows.probability, [0.1, 0.2, 0.3, 0.5])
    for number in range(5):
        probability = rows.probability[bins == number]
        clicks, expected = rows.labels[bins == number].sum(), probability.sum()
        spread = np.sqrt((probability * (1 - probability)).sum())
        assert abs(clicks - expected) < 4 * spread
    assert roc_auc_score(rows.labels, rows.probability) > 0.75


def test_the_shape_of_criteo(rows):
    assert 0.18 < rows.labels.mean() < 0.28
    values = rows.table[:, 1:]
    gone = np.concatenate([values[:, :13] == MISSING_NUMBER, values[:, 13:] == 0], 1)
    assert gone.mean() == pytest.approx(0.14, abs=0.01)
    assert len(np.unique(rows.categories[:, 8])) == 3
    assert len(np.unique(rows.categories[:, 2])) > 5000
    counts = np.sort(np.unique(rows.categories[:, 0], return_counts=True)[1])[::-1]
    assert counts[0] > 5 * counts[9]
    present = rows.numbers[:, 6] != MISSING_NUMBER
    assert stats.spearmanr(rows.numbers[present, 1], rows.numbers[present, 6]).statistic > 0.15
