"""Bins and calibration error against a loop, torchmetrics and closed forms."""

import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from predbn.metrics import ece, reliability

from .examples import cases, confidences_and_right, predictions, reference_bins, reference_ece


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("bins", [1, 2, 7, 10, 30])
def test_equal_width_bins_are_a_loop_over_examples(case, bins):
    p, y = cases()[case]
    edges = [b / bins for b in range(bins + 1)]
    confidences, right = confidences_and_right(p, y)
    found = reliability(p, y, bins=bins)
    assert found.edges.tolist() == edges
    for row, (count, total, hits) in zip(found.rows(), reference_bins(confidences, right, edges), strict=True):
        assert row["count"] == count
        assert row["confidence"] == (pytest.approx(total / count, rel=1e-12) if count else None)
        assert row["accuracy"] == (pytest.approx(hits / count, rel=1e-12) if count else None)
    assert ece(p, y, bins=bins).item() == pytest.approx(reference_ece(confidences, right, edges), abs=1e-12)


@pytest.mark.parametrize("bins", [5, 10, 15, 30])
def test_torchmetrics_gives_the_same_inside_the_bins(bins):
    p, y = predictions(500)
    expected = multiclass_calibration_error(p, y, num_classes=10, n_bins=bins, norm="l1")
    torch.testing.assert_close(ece(p, y, bins=bins), expected.double())
