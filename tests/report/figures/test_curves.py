"""Curves and scatter plots: ranges against plain Python, one dot per split."""

import pandas as pd

from predbn.report.figures import SEVERITY_STYLES, curves, scatter
from predbn.report.figures.curves import value_ranges
from predbn.report.style import SeriesStyle

from ..conftest import values_of

VALUES = pd.DataFrame({"series": ["a", "a", "a", "b"], "eps": [0.1, 0.1, 1.0, 0.1], "value": [0.2, 0.4, 0.5, 0.9]})
STYLES = [SeriesStyle("a", "#111111", True), SeriesStyle("b", "#222222", False)]


def test_ranges_are_mean_lowest_and_highest():
    found = {
        (row["series"], row["eps"]): (row["mean"], row["min"], row["max"])
        for row in value_ranges(VALUES, "eps").to_dict("records")
    }
    assert found[("a", 0.1)] == ((0.2 + 0.4) / 2, 0.2, 0.4)
    assert found[("b", 0.1)] == (0.9, 0.9, 0.9)


def test_a_band_a_line_and_dots_and_a_mark_if_asked_for():
    spec = curves(VALUES, "ece", STYLES, by="eps", title="eps", mark=0.1).to_dict()
    kinds = [layer["mark"]["type"] for layer in spec["layer"]]
    assert kinds == ["rule", "area", "line", "circle"]
    assert len(values_of(spec, spec["layer"][2])) == 3
    assert spec["layer"][2]["encoding"]["x"]["scale"]["type"] == "log"
    plain = curves(VALUES, "ece", STYLES, by="eps", title="eps", log=False, log_value=True).to_dict()
    assert [layer["mark"]["type"] for layer in plain["layer"]] == ["area", "line", "circle"]
    assert plain["layer"][1]["encoding"]["y"]["scale"]["type"] == "log"


def test_a_dot_for_each_split_coloured_by_severity():
    rows = [
        {"panel": panel, "corruption": "fog", "severity": severity, "value": 0.1 * severity, "divergence": severity}
        for panel in ("train BN", "prediction BN")
        for severity in range(6)
    ]
    spec = scatter(
        pd.DataFrame(rows), "brier", across="divergence", title="nats", panels=["train BN", "prediction BN"], log=True
    ).to_dict()
    dots = spec["datasets"][spec["data"]["name"]]
    assert len(dots) == 12
    assert {dot["level"] for dot in dots} == {style.series for style in SEVERITY_STYLES}
    assert spec["facet"]["sort"] == ["train BN", "prediction BN"]
    assert spec["spec"]["encoding"]["x"]["scale"]["type"] == "symlog"
    assert len({style.colour for style in SEVERITY_STYLES}) == 6
