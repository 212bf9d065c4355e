"""Scatter plots of splits: one panel a scheme, the stronger the shift the stronger the colour."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from ..looks import Look
from ..meanings import meaning
from .parts import inline, series_scale

__all__ = ["SEVERITIES", "scatter"]

SEVERITIES = tuple(
    Look(f"severity {severity}" if severity else "clean", colour, False)
    for severity, colour in enumerate(("#7d828a", "#9ecae1", "#6baed6", "#3f8fc6", "#1c6bb0", "#08407a"))
)
"""The looks of the severities: clean in grey, then ever stronger."""


def scatter(
    points: pd.DataFrame, metric: str, *, across: str, title: str, panels: Sequence[str], log: bool = False
) -> alt.FacetChart:
    """One dot a split: a metric over the column `across`, by `panel`, coloured by `severity`.

    points   the columns panel, corruption, severity, value and `across`
    title    of the x axis
    log      whether x is on a symmetric logarithmic scale, which has room for 0
    """
    known = meaning(metric)
    shown = points.assign(level=[SEVERITIES[severity].series for severity in points["severity"]])
    legend = alt.Legend(orient="top", columns=6, symbolType="circle")
    chart = (
        alt.Chart()
        .mark_circle(size=34, opacity=0.9)
        .encode(
            x=alt.X(
                f"{across}:Q",
                title=title,
                scale=alt.Scale(type="symlog" if log else "linear"),
                axis=alt.Axis(tickCount=5, domain=False, ticks=False, format="~s"),
            ),
            y=alt.Y(
                "value:Q",
                title=known.label,
                scale=alt.Scale(zero=known.better == "lower"),
                axis=alt.Axis(format=known.axis_format, tickCount=5, domain=False, ticks=False),
            ),
            color=alt.Color("level:N", title=None, scale=series_scale(SEVERITIES, "colour"), legend=legend),
            tooltip=[
                alt.Tooltip("corruption:N"),
                alt.Tooltip("severity:O"),
                alt.Tooltip(f"{across}:Q", title=title, format=".3~g"),
                alt.Tooltip("value:Q", title=known.label, format=".1%" if known.percent else ".3f"),
            ],
        )
        .properties(width=220, height=220)
    )
    facet = alt.Facet("panel:N", title=None, sort=list(panels), header=alt.Header(labelFontWeight=600))
    found: alt.FacetChart = chart.facet(facet=facet, columns=3, data=inline(shown)).properties(
        title=f"{known.label[0].upper()}{known.label[1:]} over {title}",
        description=f"Scatter plots of {known.label} over {title}, a dot for each split: {', '.join(panels)}.",
    )
    return found
