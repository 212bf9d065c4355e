"""Scatter plots: a dot a split, its colour the severity's."""

from __future__ import annotations

import pandas as pd

from predbn.report.figures import scatter
from predbn.report.figures.scatter import SEVERITIES


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
    assert {dot["level"] for dot in dots} == {look.series for look in SEVERITIES}
    assert spec["facet"]["sort"] == ["train BN", "prediction BN"]
    assert spec["spec"]["encoding"]["x"]["scale"]["type"] == "symlog"
    assert len({look.colour for look in SEVERITIES}) == 6
