"""Reliability diagrams: accuracy against confidence, a panel for each severity."""

from __future__ import annotations

import altair as alt
import pandas as pd

from predbn.common import ReportError

from ..frames import checked_reliability, with_series
from ..looks import looks
from .parts import inline, series_scale

__all__ = ["pooled", "reliability"]


def pooled(rel: pd.DataFrame) -> pd.DataFrame:
    """The bins of all corruptions, models and seeds together, by series and severity.

    Counts add up, and means are weighted with them: accuracy = Σ nᵢ·accuracyᵢ / Σ nᵢ, as if all predictions had
    gone into one set of bins. `share` is a bin's part of its panel's predictions. Empty bins are left out.
    """
    rows = with_series(rel[rel["count"] > 0])
    rows = rows.assign(
        confident=rows["confidence"] * rows["count"],
        correct=rows["accuracy"] * rows["count"],
    )
    keys = ["series", "severity", "bin"]
    sums: pd.DataFrame = rows.groupby(keys, as_index=False, sort=False)[["count", "confident", "correct"]].sum()
    total = sums.groupby(["series", "severity"])["count"].transform("sum")
    means = {
        "confidence": sums["confident"] / sums["count"],
        "accuracy": sums["correct"] / sums["count"],
        "share": sums["count"] / total,
    }
    bins: pd.DataFrame = sums[[*keys, "count"]].assign(**means).sort_values(keys)
    return bins


def reliability(rel: pd.DataFrame) -> alt.FacetChart:
    """Accuracy over mean confidence within bins of confidence: on the diagonal a model is calibrated.

    Below the diagonal it is over-confident. A dot's area is the share of predictions in its bin.
    """
    rows = checked_reliability(rel)
    bins = pooled(rows)
    if bins.empty:
        raise ReportError("Every bin of the reliability frame is empty: evaluate at least one image.")
    drawn = looks(rows)
    legend = alt.Legend(orient="top", columns=2, symbolType="stroke", symbolStrokeWidth=2)
    colour = alt.Color("series:N", title=None, scale=series_scale(drawn, "colour"), legend=legend)
    percent = alt.Axis(format="%", values=[0, 0.5, 1], domain=False, ticks=False)
    unit = alt.Scale(domain=[0, 1])
    chart = alt.Chart().encode(
        x=alt.X("confidence:Q", title="confidence", scale=unit, axis=percent),
        y=alt.Y("accuracy:Q", title="accuracy", scale=unit, axis=percent),
        color=colour,
    )
    lines = chart.mark_line(strokeWidth=1.5).encode(
        order="bin:O",
        strokeDash=alt.StrokeDash("series:N", title=None, scale=series_scale(drawn, "dash"), legend=legend),
    )
    dots = chart.mark_circle(opacity=0.85).encode(
        size=alt.Size("share:Q", scale=alt.Scale(domain=[0, 1], range=[6, 220]), legend=None),
        tooltip=[
            alt.Tooltip("series:N", title="series"),
            alt.Tooltip("confidence:Q", format=".1%", title="mean confidence"),
            alt.Tooltip("accuracy:Q", format=".1%", title="accuracy"),
            alt.Tooltip("count:Q", format=",", title="predictions"),
        ],
    )
    corners = alt.InlineData(values=[{"at": 0}, {"at": 1}])
    diagonal = alt.Chart(corners).mark_line(style="diagonal").encode(x="at:Q", y="at:Q")
    panel = alt.layer(diagonal, lines, dots).properties(width=180, height=180)
    named = alt.Header(labelExpr="datum.value == 0 ? 'clean' : 'severity ' + datum.value", labelFontWeight=600)
    facet = alt.Facet("severity:O", title=None, header=named)
    panels: alt.FacetChart = panel.facet(facet=facet, columns=3, data=inline(bins)).properties(
        title="Reliability: below the diagonal is over-confident",
        description="Reliability diagrams: accuracy over confidence, a panel for each severity.",
    )
    return panels
