"""The figures of an examination: how well the stored statistics fit, by layer and channel, and where data shifted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt
import pandas as pd

from predbn.common import ReportError
from predbn.diagnostics import Examination, LayerFit, fit_limit, shift_limit

from ..style import GREY, HUES, SeriesStyle
from .encoding import by_series, inline_data, names_of, series_legend
from .layers import layer_chart

_STYLES = {"reference": SeriesStyle("reference", GREY, True), "data": SeriesStyle("data", HUES[1], False)}
_WIDE = 2.0
"""Beyond this distance the axis is one of square roots, so that the others can still be told apart."""


def data_styles(examination: Examination) -> list[SeriesStyle]:
    """The styles of the data that was measured."""
    return [_STYLES[name] for name in examination.examples]


def fit_by_layer(examination: Examination) -> alt.LayerChart:
    """How far the stored statistics of each layer are from those of the reference and of the data."""
    rows = list(_fits(examination.layers))
    return _by_layer(
        rows,
        data_styles(examination),
        "from the stored statistics, standard deviations",
        title="How well the stored statistics fit",
        description=f"Distance from the stored statistics, by layer: {names_of(data_styles(examination))}",
    )


def shift_by_layer(examination: Examination) -> alt.LayerChart:
    """How far the statistics of the data are from those of the reference."""
    rows = [
        _point(row.layer, "data", row.shift, shift_limit(row.shift_chance))
        for row in examination.layers
        if row.shift is not None and row.shift_chance is not None
    ]
    return _by_layer(
        rows,
        [_STYLES["data"]],
        "from the reference, standard deviations",
        title="How far the data has shifted",
        description="Distance of the data's statistics from the reference's, by layer",
    )


def channels_of_layer(examination: Examination, layer: str) -> alt.LayerChart:
    """One point per channel: by how much its mean is off, and how much wider or narrower it is than stored."""
    fit = examination.channels[layer]
    rows = [
        {"series": name, "channel": channel, "mean": mean, "ratio": ratio}
        for name, (means, ratios) in fit.items()
        for channel, (mean, ratio) in enumerate(zip(means, ratios, strict=True))
    ]
    styles = [_STYLES[name] for name in fit]
    nought: dict[str, float] = {"mean": 0.0, "ratio": 1.0}
    points = (
        alt.Chart(inline_data(pd.DataFrame(rows)))
        .mark_point(size=34, strokeWidth=1.5, opacity=1)
        .encode(
            x=alt.X("mean:Q", title="mean, in stored standard deviations from the stored one"),
            y=alt.Y(
                "ratio:Q",
                title="standard deviation, times the stored one",
                scale=alt.Scale(type="log", nice=False, padding=16),
                axis=alt.Axis(tickCount=5, format="~g"),
            ),
            **by_series(styles, series_legend(), stroke="colour", fill="area"),
            tooltip=[
                alt.Tooltip("series:N", title="measured on"),
                alt.Tooltip("channel:Q", title="channel"),
                alt.Tooltip("mean:Q", title="mean is off by", format=".2f"),
                alt.Tooltip("ratio:Q", title="times as wide", format=".2f"),
            ],
        )
    )
    cross = alt.Chart(alt.InlineData(values=[nought]))
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
    return chart


def _fits(rows: Sequence[LayerFit]) -> Iterator[dict[str, object]]:
    for row in rows:
        for name, value, chance in (
            ("reference", row.reference, row.reference_chance),
            ("data", row.data, row.data_chance),
        ):
            if value is not None and chance is not None:
                yield _point(row.layer, name, value, fit_limit(chance))


def _point(layer: str, series: str, distance: float, threshold: float) -> dict[str, object]:
    return {"layer": layer, "series": series, "distance": distance, "threshold": threshold, "spanned": True}


def _by_layer(rows: list[dict[str, object]], styles: list[SeriesStyle], x_title: str, **text: str) -> alt.LayerChart:
    if not rows:
        raise ReportError("No layer was measured, so there is nothing to draw: examine the model with data.")
    frame = pd.DataFrame(rows)
    is_wide = frame["distance"].max() > _WIDE
    return layer_chart(
        frame,
        styles,
        x_title=x_title,
        scale=alt.Scale(type="sqrt") if is_wide else None,
        tooltip=[
            alt.Tooltip("layer:N", title="layer"),
            alt.Tooltip("series:N", title="measured on"),
            alt.Tooltip("distance:Q", title="distance", format=".3f"),
            alt.Tooltip("threshold:Q", title="may be", format=".3f"),
        ],
        **text,
    )
