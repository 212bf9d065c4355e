"""Distances by layer: what a diagnosis and an examination draw alike."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from ..style import GREY, SeriesStyle
from .encoding import by_series, inline_data, series_legend


def layer_chart(
    frame: pd.DataFrame,
    styles: Sequence[SeriesStyle],
    *,
    x_title: str,
    tooltip: Sequence[alt.Tooltip],
    scale: alt.Scale | None = None,
    **text: str,
) -> alt.LayerChart:
    """One row per layer, in the order of the frame, with a dot per series at its distance.

    The frame has the columns layer, series, distance, threshold (how far the grey bar of the layer reaches) and
    spanned (whether the line that joins the dots of a layer includes this one); `text` is title and description.
    """
    layers = list(dict.fromkeys(frame["layer"]))
    spans: pd.DataFrame = (
        frame[frame["spanned"]]
        .groupby("layer", sort=False)
        .agg(low=("distance", "min"), high=("distance", "max"), threshold=("threshold", "max"))
        .reset_index()
    )
    row_height = 19 if len(layers) <= 40 else 13 if len(layers) <= 80 else 9
    y = alt.Y(
        "layer:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=layers, padding=0.5),
        axis=alt.Axis(
            domain=False, ticks=False, labelLimit=150, labelFontSize=min(11, row_height), labelOverlap=True, grid=False
        ),
    )

    def x(field: str) -> alt.X:
        axis = alt.Axis(domain=False, ticks=False, tickCount=6)
        return alt.X(f"{field}:Q", title=x_title, axis=axis, scale=scale or alt.Undefined)

    base = alt.Chart(inline_data(spans)).encode(y=y)
    by_chance = base.mark_bar(size=max(4, row_height - 7), color=GREY, opacity=0.18).encode(x=x("threshold"))
    span = base.mark_rule(color=GREY, opacity=0.6).encode(x=x("low"), x2=alt.X2("high:Q"))
    dots = (
        alt.Chart(inline_data(frame.drop(columns="spanned")))
        .mark_point(size=52 if row_height > 10 else 26, strokeWidth=1.5, opacity=1)
        .encode(
            y=y,
            x=x("distance"),
            **by_series(styles, series_legend(), stroke="colour", fill="area"),
            tooltip=list(tooltip),
        )
    )
    chart: alt.LayerChart = alt.layer(by_chance, span, dots).properties(
        width=640, height=row_height * len(layers), **text
    )
    return chart
