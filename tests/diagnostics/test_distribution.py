"""Range, fit and histogram of the same values, merged and cut together."""

from __future__ import annotations

import pytest
import torch

from predbn.common import DiagnosticError
from predbn.diagnostics.distribution import Distribution
from predbn.diagnostics.histogram import Bins

from .models import normal


def distribution_of(values: torch.Tensor, **options) -> Distribution:
    distribution = Distribution(**options)
    for part in values.split(7):
        distribution.update(part)
    return distribution


def test_range_fit_and_histogram():
    values = normal(40, 3)
    bins = Bins.over(values.amin(0), values.amax(0), 8)
    whole, parts = distribution_of(values, bins=bins), [distribution_of(part, bins=bins) for part in values.split(15)]
    for d in (whole, parts[0].merge(parts[1]).merge(parts[2]), Distribution().merge(whole), whole.cpu()):
        assert (d.count, d.columns) == (40, 3)
        assert d.low.equal(values.amin(0))
        assert d.high.equal(values.amax(0))
        torch.testing.assert_close(d.gaussian.var, values.var(0, correction=0))
        assert d.histogram.counts.equal(whole.histogram.counts)
        assert d.bins(99) is d.histogram.bins
    part = whole.take(slice(1, 3))
    assert part.columns == 2
    assert part.histogram.counts.equal(whole.histogram.counts[1:])


def test_without_bins_there_is_no_histogram():
    plain = distribution_of(normal(10, 2))
    with pytest.raises(DiagnosticError, match="No histogram"):
        _ = plain.histogram
    assert plain.bins(8).inside == 8
    with pytest.raises(DiagnosticError, match="keep it for both"):
        plain.merge(distribution_of(normal(10, 2), bins=plain.bins(8)))
