"""Counts against numpy's histogram."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.common import DiagnosticError
from predbn.diagnostics.histogram import Bins, Histogram

from .models import normal


def bins_of(values: torch.Tensor, inside: int = 8) -> Bins:
    return Bins.over(values.amin(0), values.amax(0), inside)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(2, 9), st.sampled_from([torch.float32, torch.float64]))
def test_counts_are_numpys(n, columns, inside, dtype):
    reference, values = normal(30, columns, seed=1), 2.5 * normal(n, columns, seed=2).to(dtype)
    histogram = Histogram(bins_of(reference, inside))
    histogram.update(values)
    edges = histogram.bins.edges.numpy()
    for column in range(columns):
        own = values[:, column].double().numpy()
        expected, _ = np.histogram(own, np.concatenate(([-np.inf], edges[column], [np.inf])))
        assert histogram.counts[column].tolist() == expected.tolist()
        low, high = edges[column][[0, -1]]
        beyond = [np.maximum(low - own, 0).sum(), np.maximum(own - high, 0).sum()]
        np.testing.assert_allclose(histogram.beyond[column].numpy(), beyond, atol=1e-9)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any))
def test_merging_gives_the_whole(sizes):
    values = normal(sum(sizes), 3)
    bins = bins_of(normal(20, 3, seed=4))
    whole, merged = Histogram(bins), Histogram(bins)
    whole.update(values)
    for part in values.split(sizes):
        histogram = Histogram(bins)
        histogram.update(part)
        merged = merged.merge(histogram)
    assert merged.count == whole.count == sum(sizes)
    assert merged.counts.equal(whole.counts)
    torch.testing.assert_close(merged.beyond, whole.beyond)


def test_the_reference_lies_inside_its_own_range():
    values = torch.cat((normal(100, 4).float(), torch.full((100, 1), 3.0), torch.zeros(100, 1)), 1)
    histogram = Histogram(bins_of(values))
    histogram.update(values)
    assert histogram.outside.tolist() == [0.0] * 6
    inside = histogram.bins.inside
    assert histogram.counts[:, inside + 1 : 2 * inside + 1].sum(1).tolist() == [100] * 6
    torch.testing.assert_close((histogram.density * histogram.bins.width[:, None]).sum(1), torch.ones(6).double())


def test_the_share_outside():
    bins = Bins.over(torch.tensor([0.0]), torch.tensor([1.0]), 4)
    histogram = Histogram(bins)
    histogram.update(torch.tensor([[-9.0], [-0.5], [0.0], [0.5], [1.0], [1.5], [99.0], [0.2]]))
    assert histogram.outside.tolist() == [0.5]
    assert histogram.counts[0, [0, -1]].tolist() == [1, 1]


def test_nan_and_infinity_do_not_affect_other_columns():
    histogram = Histogram(bins_of(normal(20, 2)))
    histogram.update(torch.tensor([[float("nan"), 0.0], [float("inf"), 0.0], [-float("inf"), 0.0]]))
    assert histogram.counts.sum(1).tolist() == [3, 3]
    assert histogram.outside[1] == 0


def test_other_bins_are_refused():
    a, b = Histogram(bins_of(normal(9, 2))), Histogram(bins_of(normal(9, 2, seed=1)))
    with pytest.raises(DiagnosticError, match="other bins"):
        a.merge(b)
    with pytest.raises(DiagnosticError, match="2 or more"):
        Bins.over(torch.zeros(1), torch.ones(1), 1)
    with pytest.raises(DiagnosticError, match="No values were seen"):
        _ = a.density
