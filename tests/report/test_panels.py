"""Which figures there are."""

from __future__ import annotations

import pandas as pd
import pytest

from predbn import report
from predbn.report.panels import panels

from .conftest import values_of


def test_the_figures_of_a_report(frame, rel):
    found = {panel.name: panel for panel in panels(frame, rel)}
    assert list(found) == ["accuracy", "brier", "ece", "gain", "reliability"]
    assert set(found["gain"].variants) == {
        (metric, f"{method}: batch over train", "")
        for metric in ("accuracy", "Brier score", "ECE")
        for method in ("vanilla", "temperature", "ensemble")
    }


def test_methods_become_a_choice_where_the_series_are_too_many_to_tell_apart(frame):
    few = frame[frame["metric"] == "ece"]
    batch = few[few["strategy"] == "batch"]
    many = pd.concat([few, *(batch.assign(strategy=name) for name in ("ema", "prior"))])
    assert list(panels(many)[0].variants) == [("", method) for method in ("vanilla", "temperature", "ensemble")]


def test_without_a_baseline_there_is_no_gain(frame):
    assert [panel.name for panel in panels(frame[frame["strategy"] == "batch"])] == ["accuracy", "brier", "ece"]


def test_one_kind_of_shift_spreads_over_seeds(frame):
    fog = frame[(frame["corruption"] == "fog") & (frame["metric"] == "accuracy")]
    repeated = pd.concat([fog.assign(seed=seed, value=fog["value"] + seed / 100) for seed in range(5)])
    (variant,) = panels(repeated)[0].variants.values()
    spec = variant.chart.to_dict()
    assert len(values_of(spec, spec["layer"][-1])) == 6 * 5 * 5


def test_all_are_saved_by_name(frame, rel, tmp_path):
    few = frame[(frame["method"] == "vanilla") & (frame["metric"] == "ece")]
    saved = report.save_all(tmp_path, few, reliability=rel[rel["method"] == "vanilla"], suffix=".svg")
    assert [path.name for path in saved] == ["ece.svg", "gain-ECE-vanilla--batch-over-train.svg", "reliability.svg"]
    with pytest.raises(report.ReportError, match="end the name with"):
        report.save_all(tmp_path, few, suffix=".bmp")
