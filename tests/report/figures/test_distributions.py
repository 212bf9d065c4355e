"""Densities: one panel per channel, one curve per series."""

from __future__ import annotations

import pandas as pd
import pytest

from predbn.report import ReportError
from predbn.report.figures import channels, densities
from predbn.report.save import vega_lite_spec
from predbn.report.style import SeriesStyle

from ..conftest import values_of


def test_densities_of_the_channels_that_moved_most(diagnosis):
    spec = vega_lite_spec(channels(diagnosis, "bn1", most=4))
    drawn = values_of(spec, spec)
    assert list(dict.fromkeys(row["channel"] for row in drawn)) == list(map(str, diagnosis.channels("bn1")[:4]))
    for channel in {row["channel"] for row in drawn}:
        for series in ("reference · train", "shifted · train", "shifted · batch"):
            curve = [row for row in drawn if (row["channel"], row["series"]) == (channel, series)]
            width = curve[1]["value"] - curve[0]["value"]
            assert sum(row["density"] for row in curve) * width == pytest.approx(1, abs=0.02)


def test_a_layer_that_is_not_there(diagnosis):
    with pytest.raises(ReportError, match="no layer 'bn9'"):
        channels(diagnosis, "bn9")


def test_panels_have_their_own_axes_and_their_order():
    rows = pd.DataFrame({"panel": ["b", "a"], "series": "s", "x": [0.0, 1.0], "density": [1.0, 2.0]})
    spec = densities(rows, [SeriesStyle("s", "#111111", False)], title="T", panels=["b", "a"]).to_dict()
    assert spec["facet"]["sort"] == ["b", "a"]
    assert spec["resolve"]["scale"] == {"x": "independent", "y": "independent"}
    assert spec["spec"]["encoding"]["y"]["stack"] is None
