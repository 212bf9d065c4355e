"""Curves: ranges against plain Python."""

from __future__ import annotations

import pandas as pd

from predbn.report.figures import curves
from predbn.report.figures.curves import ranges
from predbn.report.looks import Look

from ..conftest import values_of

VALUES = pd.DataFrame({"series": ["a", "a", "a", "b"], "eps": [0.1, 0.1, 1.0, 0.1], "value": [0.2, 0.4, 0.5, 0.9]})
LOOKS = [Look("a", "#111111", True), Look("b", "#222222", False)]


def test_ranges_are_mean_lowest_and_highest():
    found = {
        (row["series"], row["eps"]): (row["mean"], row["min"], row["max"])
        for row in ranges(VALUES, "eps").to_dict("records")
    }
    assert found[("a", 0.1)] == ((0.2 + 0.4) / 2, 0.2, 0.4)
    assert found[("b", 0.1)] == (0.9, 0.9, 0.9)


def test_a_band_a_line_and_dots_and_a_mark_where_asked_for():
    spec = curves(VALUES, "ece", LOOKS, by="eps", title="eps", mark=0.1).to_dict()
    kinds = [layer["mark"]["type"] for layer in spec["layer"]]
    assert kinds == ["rule", "area", "line", "circle"]
    assert len(values_of(spec, spec["layer"][2])) == 3
    assert spec["layer"][2]["encoding"]["x"]["scale"]["type"] == "log"
    plain = curves(VALUES, "ece", LOOKS, by="eps", title="eps", log=False, log_value=True).to_dict()
    assert [layer["mark"]["type"] for layer in plain["layer"]] == ["area", "line", "circle"]
    assert plain["layer"][1]["encoding"]["y"]["scale"]["type"] == "log"
