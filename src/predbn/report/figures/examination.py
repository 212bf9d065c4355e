"""The figures of an examination: how well the stored statistics fit, by layer and channel, and where data shifted."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from predbn.common import ReportError
from predbn.diagnostics import Examination

from ..figure import FigureVariant
from ..style import GREY, HUES, SeriesStyle
from .encoding import by_series, inline_data, names_of, series_legend

_REFERENCE, _DATA = SeriesStyle("reference", GREY, True), SeriesStyle("data", HUES[1], False)
_STORED = SeriesStyle("stored statistics", HUES[1], False)
_RECOMPUTED = SeriesStyle("statistics of the batch", HUES[0], True)


def fit_by_layer(examination: Examination) -> FigureVariant:
    """How far the stored statistics of each layer are from those of the reference."""
    rows = [
        {"layer": row.layer, "series": _REFERENCE.series, "distance": row.fit, "limit": row.fit_limit}
        for row in examination.layers
        if row.fit is not None
    ]
    return _by_layer(rows, [_REFERENCE], "stored standard deviations", "How well the stored statistics fit")


def shift_by_layer(examination: Examination) -> FigureVariant:
    """How far the statistics of the data are from those of the reference.

    If the stored statistics are wrong, those of the batch are used.
    """
    styles = [_RECOMPUTED] if examination.is_broken else [_STORED, _RECOMPUTED]
    rows = [
        {"layer": row.layer, "series": style.series, "distance": distance, "limit": row.shift_limit}
        for row in examination.layers
        for style, distance in zip(styles, (row.shift, row.shift_recomputed), strict=False)
        if distance is not None
    ]
    return _by_layer(rows, styles, "standard deviations of the reference", "How far the data has shifted")


def channels_of_layer(examination: Examination, layer: str) -> FigureVariant:
    """One point per channel: how far its mean is from the stored one, and how much wider it is."""
    styles = [style for style in (_REFERENCE, _DATA) if style.series in examination.examples]
    rows = [
        {"series": name, "channel": channel, "mean": mean, "ratio": ratio}
        for name, (means, ratios) in examination.channels[layer].items()
        for channel, (mean, ratio) in enumerate(zip(means, ratios, strict=True))
    ]
    points = (
        alt.Chart(inline_data(pd.DataFrame(rows)))
        .mark_point(size=34, strokeWidth=1.5, opacity=1)
        .encode(
            x=alt.X("mean:Q", title="mean − stored mean, in stored standard deviations"),
            y=alt.Y(
                "ratio:Q",
                title="standard deviation / stored one",
                scale=alt.Scale(type="log", nice=False, padding=16),
                axis=alt.Axis(tickCount=5, format="~g"),
            ),
            **by_series(styles, series_legend(), stroke="colour", fill="area"),
            tooltip=[
                alt.Tooltip("series:N", title="measured on"),
                alt.Tooltip("channel:Q", title="channel"),
                alt.Tooltip("mean:Q", title="mean − stored mean", format=".2f"),
                alt.Tooltip("ratio:Q", title="ratio of standard deviations", format=".2f"),
            ],
        )
    )
    origin: dict[str, float] = {"mean": 0.0, "ratio": 1.0}
    cross = alt.Chart(alt.InlineData(values=[origin]))
    lines = [
        cross.mark_rule(style="diagonal").encode(x="mean:Q"),
        cross.mark_rule(style="diagonal").encode(y="ratio:Q"),
    ]
    chart: alt.LayerChart = alt.layer(*lines, points).properties(
        width=640,
        height=300,
        title=f"The channels of {layer}",
        description=f"Each channel of {layer}: how far its mean and its standard deviation are from the stored ones",
    )
    return FigureVariant(chart, styles)


def _by_layer(rows: list[dict[str, Any]], styles: list[SeriesStyle], x_title: str, title: str) -> FigureVariant:
    """One row per layer in the order of the calls, with a dot per series at its distance and a bar up to its limit."""
    if not rows:
        raise ReportError("No layer was measured, so there is nothing to draw: examine the model with data.")
    frame = pd.DataFrame(rows)
    layers = list(dict.fromkeys(frame["layer"]))
    spans: pd.DataFrame = (
        frame.groupby("layer", sort=False)
        .agg(low=("distance", "min"), high=("distance", "max"), limit=("limit", "max"))
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
        return alt.X(f"{field}:Q", title=x_title, axis=alt.Axis(domain=False, ticks=False, tickCount=6))

    base = alt.Chart(inline_data(spans)).encode(y=y)
    limits = base.mark_bar(size=max(4, row_height - 7), color=GREY, opacity=0.18).encode(x=x("limit"))
    span = base.mark_rule(color=GREY, opacity=0.6).encode(x=x("low"), x2=alt.X2("high:Q"))
    dots = (
        alt.Chart(inline_data(frame))
        .mark_point(size=52 if row_height > 10 else 26, strokeWidth=1.5, opacity=1)
        .encode(
            y=y,
            x=x("distance"),
            **by_series(styles, series_legend(), stroke="colour", fill="area"),
            tooltip=[
                alt.Tooltip("layer:N", title="layer"),
                alt.Tooltip("series:N", title="series"),
                alt.Tooltip("distance:Q", title="distance", format=".3f"),
                alt.Tooltip("limit:Q", title="limit", format=".3f"),
            ],
        )
    )
    chart: alt.LayerChart = alt.layer(limits, span, dots).properties(
        width=640,
        height=row_height * len(layers),
        title=title,
        description=f"{title}, by layer: {names_of(styles)}",
    )
    return FigureVariant(chart, styles)
