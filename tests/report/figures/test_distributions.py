"""Densities: one panel per channel, one curve per series."""

import pandas as pd

from predbn.report.figures import densities
from predbn.report.style import SeriesStyle


def test_panels_have_their_own_axes_and_their_order():
    rows = pd.DataFrame({"panel": ["b", "a"], "series": "s", "x": [0.0, 1.0], "density": [1.0, 2.0]})
    spec = densities(rows, [SeriesStyle("s", "#111111", False)], title="T", panels=["b", "a"]).to_dict()
    assert spec["facet"]["sort"] == ["b", "a"]
    assert spec["resolve"]["scale"] == {"x": "independent", "y": "independent"}
    assert spec["spec"]["encoding"]["y"]["stack"] is None
