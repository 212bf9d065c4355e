"""The share of predictions by confidence, above the share of them that was right."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from ..looks import Look
from .parts import inline, series_legend, series_scale

__all__ = ["confidence_bins"]


def confidence_bins(bins: pd.DataFrame, looks: Sequence[Look]) -> alt.VConcatChart:
    """From one row a series and bin: series, lower, upper, count, right.

    The upper scale is a square root, since bins near certainty hold many times as many predictions as others.
    """
    total = bins.groupby("series")["count"].transform("sum")
    drawn = bins.assign(
        share=bins["count"] / total,
        accuracy=bins["right"] / bins["count"],
        middle=(bins["lower"] + bins["upper"]) / 2,
    )
    percent = alt.Axis(format="%", domain=False, ticks=False, tickCount=5)
    unit = alt.Scale(domain=[0, 1], nice=False)
    legend = series_legend("stroke")
    shared = {
        "x": alt.X("middle:Q", title="confidence", scale=unit, axis=percent),
        "color": alt.Color("series:N", title=None, legend=legend, scale=series_scale(looks, "colour")),
        "strokeDash": alt.StrokeDash("series:N", title=None, legend=legend, scale=series_scale(looks, "dash")),
        "tooltip": [
            alt.Tooltip("series:N", title="series"),
            alt.Tooltip("lower:Q", title="from", format=".0%"),
            alt.Tooltip("upper:Q", title="to", format=".0%"),
            alt.Tooltip("count:Q", title="predictions", format=","),
            alt.Tooltip("accuracy:Q", title="accuracy", format=".1%"),
        ],
    }
    base = alt.Chart(inline(drawn)).mark_line(strokeWidth=1.5)
    root = alt.Scale(type="sqrt", domainMin=0)
    shares = base.mark_line(strokeWidth=1.5, interpolate="step").encode(
        y=alt.Y("share:Q", title="share of predictions", scale=root, axis=percent), **shared
    )
    hits = base.encode(y=alt.Y("accuracy:Q", title="accuracy", scale=unit, axis=percent), **shared)
    corners = alt.InlineData(values=[{"at": 0}, {"at": 1}])
    diagonal = alt.Chart(corners).mark_line(style="diagonal").encode(x="at:Q", y="at:Q")
    chart: alt.VConcatChart = alt.vconcat(
        shares.properties(width=560, height=150),
        alt.layer(diagonal, hits).properties(width=560, height=300),
    ).properties(
        title="Confidence, and accuracy by confidence",
        description="Share of predictions and accuracy by confidence: " + ", ".join(each.series for each in looks),
    )
    return chart
