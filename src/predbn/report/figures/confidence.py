"""How sure the model is, on the reference and on the shifted data."""

from __future__ import annotations

import altair as alt
import pandas as pd

from predbn.common import ReportError
from predbn.diagnostics import Diagnosis

from ..sides import sides
from .parts import inline, series_legend, series_scale

__all__ = ["confidence"]

MERGED = 5


def confidence(diagnosis: Diagnosis) -> alt.LayerChart:
    """The share of predictions by confidence, in twenty bins; the scale is a square root, since most are sure."""
    rows = []
    for look, profile in sides(diagnosis):
        if profile.confidence is None:
            continue
        counts = profile.confidence.counts.view(-1, MERGED).sum(1)
        shares = (counts.double() / profile.confidence.count).tolist()
        width = 1 / len(shares)
        for place, share in enumerate(shares):
            rows.append({"series": look.series, "low": place * width, "high": (place + 1) * width, "share": share})
    if not rows:
        raise ReportError("The model gave no logits, so that there is no confidence to draw.")
    looks = [look for look, _ in sides(diagnosis)]
    legend = series_legend("stroke")
    frame: pd.DataFrame = pd.DataFrame(rows)
    ends = frame.groupby("series", sort=False).tail(1).assign(low=1.0)
    axis = alt.Axis(format="%", domain=False, ticks=False, tickCount=5)
    base = alt.Chart(inline(pd.concat([frame, ends]))).encode(
        x=alt.X("low:Q", title="confidence", scale=alt.Scale(domain=[0, 1], nice=False), axis=axis),
        y=alt.Y("share:Q", title=None, scale=alt.Scale(type="sqrt"), axis=axis, stack=None),
    )
    area = base.mark_area(interpolate="step-after", opacity=0.13).encode(
        fill=alt.Fill("series:N", title=None, legend=legend, scale=series_scale(looks, "colour"))
    )
    line = base.mark_line(interpolate="step-after", strokeWidth=1.5).encode(
        stroke=alt.Stroke("series:N", title=None, legend=legend, scale=series_scale(looks, "colour")),
        strokeDash=alt.StrokeDash("series:N", title=None, legend=legend, scale=series_scale(looks, "dash")),
        tooltip=[
            alt.Tooltip("series:N", title="data · strategy"),
            alt.Tooltip("low:Q", title="from", format=".0%"),
            alt.Tooltip("high:Q", title="to", format=".0%"),
            alt.Tooltip("share:Q", title="predictions", format=".1%"),
        ],
    )
    chart: alt.LayerChart = alt.layer(area, line).properties(
        width=640,
        height=220,
        title="Confidence",
        description="Share of predictions by confidence: " + ", ".join(look.series for look in looks),
    )
    return chart
