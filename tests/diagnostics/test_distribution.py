"""What is kept of values: the parts go together."""

from __future__ import annotations

import pytest
import torch

from predbn.diagnostics import Bins, DiagnosticError, Distribution

from .models import normal


def seen(values: torch.Tensor, **options) -> Distribution:
    distribution = Distribution(**options)
    for part in values.split(7):
        distribution.update(part)
    return distribution


def test_range_fit_and_histogram():
    values = normal(40, 3)
    bins = Bins.over(values.amin(0), values.amax(0), 8)
    whole, parts = seen(values, bins=bins), [seen(part, bins=bins) for part in values.split(15)]
    for one in (whole, parts[0].merge(parts[1]).merge(parts[2]), Distribution().merge(whole), whole.cpu()):
        assert (one.count, one.columns) == (40, 3)
        assert one.low.equal(values.amin(0))
        assert one.high.equal(values.amax(0))
        torch.testing.assert_close(one.gaussian.var, values.var(0, correction=0))
        assert one.histogram.counts.equal(whole.histogram.counts)
        assert one.bins(99) is one.histogram.bins
    part = whole.take(slice(1, 3))
    assert part.columns == 2
    assert part.histogram.counts.equal(whole.histogram.counts[1:])


def test_without_bins_there_is_no_histogram():
    plain = seen(normal(10, 2))
    with pytest.raises(DiagnosticError, match="No histogram"):
        _ = plain.histogram
    assert plain.bins(8).inside == 8
    with pytest.raises(DiagnosticError, match="keep it for both"):
        plain.merge(seen(normal(10, 2), bins=plain.bins(8)))
