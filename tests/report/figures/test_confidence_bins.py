"""Shares add up to one a series, and accuracies are those of the bins."""

from __future__ import annotations

import pandas as pd
import pytest

from predbn.report.figures import confidence_bins
from predbn.report.looks import GREY, HUES, Look


def test_shares_and_accuracies_are_those_of_the_bins():
    bins = pd.DataFrame(
        {
            "series": ["a", "a", "b"],
            "bin": [0, 9, 5],
            "lower": [0.0, 0.9, 0.5],
            "upper": [0.1, 1.0, 0.6],
            "count": [30, 10, 7],
            "right": [3.0, 9.0, 7.0],
        }
    )
    looks = [Look("a", GREY, True), Look("b", HUES[0], False)]
    spec = confidence_bins(bins, looks).to_dict()
    rows = next(iter(spec["datasets"].values())) if "datasets" in spec else spec["vconcat"][0]["data"]["values"]
    found = {(row["series"], row["bin"]): row for row in rows if "series" in row}
    assert found["a", 0]["share"] == pytest.approx(0.75)
    assert found["b", 5]["share"] == 1
    assert found["a", 9]["accuracy"] == pytest.approx(0.9)
    assert found["b", 5]["middle"] == pytest.approx(0.55)
    assert spec["title"]
