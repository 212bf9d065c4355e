"""Distributions side by side: small panels, one a channel or dimension, a curve for each series."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from ..looks import Look
from .parts import inline, series_scale

__all__ = ["densities"]


def densities(
    values: pd.DataFrame, drawn: Sequence[Look], *, title: str, panels: Sequence[str], columns: int = 4
) -> alt.FacetChart:
    """Histograms as outlines: the columns panel, series, x (the middle of a bin) and density.

    Panels have axes of their own, for channels differ in scale; only their shape and place are compared.
    """
    legend = alt.Legend(orient="top", columns=3, symbolType="stroke", symbolStrokeWidth=2)
    colour = alt.Color("series:N", title=None, scale=series_scale(drawn, "colour"), legend=legend)
    plain = alt.Axis(grid=False, tickCount=4, ticks=False)
    chart = (
        alt.Chart()
        .mark_area(interpolate="step", fillOpacity=0.12, line={"strokeWidth": 1.5})
        .encode(
            x=alt.X("x:Q", title=None, axis=plain, scale=alt.Scale(zero=False, nice=False)),
            y=alt.Y("density:Q", title=None, axis=None, stack=None),
            color=colour,
        )
        .properties(width=150, height=90)
    )
    facet = alt.Facet("panel:N", title=None, sort=list(panels), header=alt.Header(labelFontWeight=600))
    found: alt.FacetChart = (
        chart.facet(facet=facet, columns=columns, data=inline(values))
        .resolve_scale(x="independent", y="independent")
        .properties(title=title, description=f"{title}: {', '.join(look.series for look in drawn)}.")
    )
    return found
