"""Reliability diagrams: pooled bins against binning all predictions together, and shares by confidence."""

import numpy as np
import pandas as pd
import pytest

from predbn.report import ReportError
from predbn.report.figures import confidence_bins, reliability
from predbn.report.figures.reliability import pool_bins
from predbn.report.frames import check_reliability
from predbn.report.style import GREY, HUES, SeriesStyle

from ..conftest import values_of

KEYS = {"model": "m", "method": "vanilla", "strategy": "batch", "severity": 1, "batch_size": 9, "order": "o", "seed": 0}


def binned(confidence: np.ndarray, correct: np.ndarray, bins: int = 5) -> list[dict[str, float]]:
    rows = []
    for index in range(bins):
        inside = np.floor(confidence * bins) == index
        some = bool(inside.any())
        rows.append(
            {
                "bin": index,
                "lower": index / bins,
                "upper": (index + 1) / bins,
                "count": int(inside.sum()),
                "confidence": confidence[inside].mean() if some else np.nan,
                "accuracy": correct[inside].mean() if some else np.nan,
            }
        )
    return rows


def test_pooling_splits_is_binning_them_together():
    random = np.random.default_rng(0)
    rows, sets = [], []
    for name, count in (("fog", 50), ("snow", 3), ("frost", 200)):
        confidence = random.uniform(0, 0.8, count)
        correct = random.uniform(size=count) < confidence
        sets.append((confidence, correct))
        rows += [{**KEYS, "corruption": name, **row} for row in binned(confidence, correct)]
    pooled = pool_bins(check_reliability(pd.DataFrame(rows)))
    together = pd.DataFrame(binned(*(np.concatenate(part) for part in zip(*sets, strict=True)))).query("count > 0")
    for column in ("bin", "count", "confidence", "accuracy"):
        assert pooled[column].to_numpy() == pytest.approx(together[column].to_numpy())
    assert pooled["share"].sum() == pytest.approx(1)


def test_a_panel_for_each_severity(rel):
    spec = reliability(rel).to_dict()
    assert spec["facet"]["field"] == "severity"
    assert {row["severity"] for row in values_of(spec, spec)} == set(range(6))
    assert spec["columns"] == 3


def test_empty_bins_and_missing_columns_are_said(rel):
    with pytest.raises(ReportError, match=r"All bins .* are empty"):
        reliability(rel.assign(count=0))
    with pytest.raises(ReportError, match=r"reliability frame needs the columns .*; it lacks bin"):
        reliability(rel.drop(columns="bin"))


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
    styles = [SeriesStyle("a", GREY, True), SeriesStyle("b", HUES[0], False)]
    spec = confidence_bins(bins, styles).to_dict()
    rows = next(iter(spec["datasets"].values())) if "datasets" in spec else spec["vconcat"][0]["data"]["values"]
    by_bin = {(row["series"], row["bin"]): row for row in rows if "series" in row}
    assert by_bin["a", 0]["share"] == pytest.approx(0.75)
    assert by_bin["b", 5]["share"] == 1
    assert by_bin["a", 9]["accuracy"] == pytest.approx(0.9)
    assert by_bin["b", 5]["middle"] == pytest.approx(0.55)
    assert spec["title"]
