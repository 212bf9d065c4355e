"""Distributions side by side: one small panel per channel or dimension, one curve per series."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from ..style import SeriesStyle
from .encoding import by_series, facets, names_of, series_legend


def densities(
    values: pd.DataFrame, styles: Sequence[SeriesStyle], *, title: str, panels: Sequence[str], columns: int = 4
) -> alt.FacetChart:
    """Histograms as outlines, from the columns panel, series, x (the middle of a bin) and density.

    Each panel has its own axes, because channels differ in scale; only shape and location are compared.
    """
    legend = series_legend("stroke", columns=3, symbolStrokeWidth=2)
    chart = (
        alt.Chart()
        .mark_area(interpolate="step", fillOpacity=0.12, line={"strokeWidth": 1.5})
        .encode(
            x=alt.X(
                "x:Q",
                title=None,
                axis=alt.Axis(grid=False, tickCount=4, ticks=False),
                scale=alt.Scale(zero=False, nice=False),
            ),
            y=alt.Y("density:Q", title=None, axis=None, stack=None),
            **by_series(styles, legend, color="colour"),
        )
        .properties(width=150, height=90)
    )
    text = {"title": title, "description": f"{title}: {names_of(styles)}."}
    return facets(chart, "panel:N", values, columns=columns, own_axes=True, sort=list(panels), **text)
