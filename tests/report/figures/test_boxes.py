"""Box plots: five numbers against numpy."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predbn.report.figures import XAxis, box_chart, boxes
from predbn.report.figures.boxes import five_numbers
from predbn.report.style import SeriesStyle

from ..conftest import values_of


@settings(max_examples=20)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_five_numbers_are_numpys_quantiles(values):
    rows = pd.DataFrame({"series": "a", "severity": 1, "value": values})
    numbers = five_numbers(rows)[["low", "lower", "median", "upper", "high"]].to_numpy()[0]
    assert numbers == pytest.approx(np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))


def test_values_that_are_not_finite_are_left_out(frame):
    frame.loc[(frame["corruption"] == "fog") & (frame["metric"] == "ece"), "value"] = np.inf
    spec = boxes(frame, "ece").to_dict()
    assert all(row["high"] < 1 for row in values_of(spec, spec["layer"][0]))


def test_a_box_for_each_series_and_severity_and_a_dot_for_each_corruption(frame):
    spec = boxes(frame, "accuracy").to_dict()
    assert len(values_of(spec, spec["layer"][0])) == 36
    dots = values_of(spec, spec["layer"][-1])
    assert len(dots) == 6 * 96
    assert {"series": "vanilla · train", "severity": 0, "what": "clean"}.items() <= dots[0].items()


def test_another_x_axis_than_severities():
    rows = [
        {"series": "a", "batch_size": size, "what": f"c{n}", "value": n / 10}
        for size in ("1", "10", "all")
        for n in range(4)
    ]
    x_axis = XAxis("batch_size", "images in a batch", ("1", "10", "all"), shared=False)
    spec = box_chart(pd.DataFrame(rows), "brier", [SeriesStyle("a", "#111111", False)], x_axis=x_axis).to_dict()
    drawn = values_of(spec, spec["layer"][0])
    assert [(row["batch_size"], row["low"], row["high"]) for row in drawn] == [
        (size, 0.0, 0.3) for size in ("1", "10", "all")
    ]
    assert spec["layer"][0]["encoding"]["x"]["sort"] == ["1", "10", "all"]
    assert "xOffset" not in spec["layer"][0]["encoding"]
