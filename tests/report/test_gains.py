"""Gains against a plain loop."""

from __future__ import annotations

import pandas as pd
import pytest

from predbn.common.errors import ReportError
from predbn.report.gains import gains


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("ece", -1)])
def test_gains_are_signed_differences_split_by_split(frame, metric, sign):
    found = gains(frame, metric, method="ensemble")
    assert len(found) == 96
    rows = frame[(frame["metric"] == metric) & (frame["method"] == "ensemble")]
    value = {(row.strategy, row.corruption, row.severity): row.value for row in rows.itertuples()}
    for row in found.itertuples():
        before, after = (value[strategy, row.corruption, row.severity] for strategy in ("train", "batch"))
        assert (row.before, row.after) == pytest.approx((before, after))
        assert row.gain == pytest.approx(sign * (after - before))


def test_only_models_that_have_both_are_compared(frame):
    lone = frame[frame["strategy"] == "batch"].assign(model="other", value=0.0)
    pd.testing.assert_frame_equal(gains(pd.concat([frame, lone]), "accuracy"), gains(frame, "accuracy"))


def test_what_cannot_be_compared_is_said(frame):
    with pytest.raises(
        ReportError, match="both strategies 'train' and 'ema' for method 'vanilla': they have batch, train"
    ):
        gains(frame, "accuracy", strategy="ema")
    with pytest.raises(ReportError, match="not known which way 'confidence' is better"):
        gains(frame.assign(metric="confidence"), "confidence")
