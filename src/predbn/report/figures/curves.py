"""A metric over a number: as curves of several series, or as a scatter plot of splits."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from ..metric_info import metric_info
from ..style import GREY, SeriesStyle
from .encoding import by_series, facets, inline_data, names_of, plain_axis, series_legend

SEVERITY_STYLES = tuple(
    SeriesStyle(f"severity {severity}" if severity else "clean", colour, False)
    for severity, colour in enumerate((GREY, "#9ecae1", "#6baed6", "#3f8fc6", "#1c6bb0", "#08407a"))
)
"""The styles of the severities: clean is grey, and stronger shifts have stronger colours."""

_MAX_TICKS = 10


def curves(
    values: pd.DataFrame,
    metric: str,
    styles: Sequence[SeriesStyle],
    *,
    by: str,
    title: str,
    log: bool = True,
    log_value: bool = False,
    mark: float | None = None,
) -> alt.LayerChart:
    """A line through the means of each series, and a band from the lowest to the highest value.

    values      the columns series, `by` (a number) and value; one row per repetition
    title       of the x axis
    log         whether the x axis is logarithmic
    log_value   whether the y axis is logarithmic
    mark        a value of x to mark with a vertical line, such as the default
    """
    info = metric_info(metric)
    legend = series_legend("stroke", symbolStrokeWidth=2, symbolOpacity=1)
    colour, dash = by_series(styles, legend, color="colour"), by_series(styles, legend, strokeDash="dash")
    x = alt.X(
        f"{by}:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False) if log else alt.Scale(nice=False, zero=False),
        axis=_x_axis(values[by], log),
    )
    y_scale = alt.Scale(type="log") if log_value else alt.Scale(zero=info.better == "lower")
    y_axis = plain_axis(format="~e" if log_value else info.axis_format, tickCount=6, grid=not log_value)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=y_scale, axis=y_axis)

    base = alt.Chart(inline_data(value_ranges(values, by))).encode(x=x)
    band = base.mark_area(opacity=0.18).encode(y=y("min"), y2="max:Q", **colour)
    line = base.mark_line(strokeWidth=2).encode(y=y("mean"), **colour, **dash)
    dots = base.mark_circle(size=40, opacity=1).encode(
        y=y("mean"),
        **colour,
        tooltip=[
            alt.Tooltip("series:N"),
            alt.Tooltip(f"{by}:Q", title=title),
            alt.Tooltip("mean:Q", title=info.label, format=info.tooltip_format),
            alt.Tooltip("min:Q", title="lowest", format=info.tooltip_format),
            alt.Tooltip("max:Q", title="highest", format=info.tooltip_format),
        ],
    )
    marks = []
    if mark is not None:
        marks.append(alt.Chart(inline_data(pd.DataFrame({by: [mark]}))).mark_rule(style="diagonal").encode(x=x))
    chart: alt.LayerChart = alt.layer(*marks, band, line, dots).properties(
        width=640,
        height=300,
        title=info.chart_title,
        description=f"Curves of {info.label} over {title}: {names_of(styles)}.",
    )
    return chart


def value_ranges(values: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean, minimum and maximum of the column `value` for every (series, by)."""
    grouped = values.groupby(["series", by], sort=False)["value"]
    ranges: pd.DataFrame = grouped.agg(["mean", "min", "max"]).reset_index()
    return ranges


def _x_axis(values: pd.Series, log: bool) -> alt.Axis:
    """If the values are a few integers, such as batch sizes, the ticks are exactly these."""
    unique = sorted(values.unique())
    if log and len(unique) <= _MAX_TICKS and all(float(value).is_integer() for value in unique):
        return alt.Axis(grid=False, values=[int(value) for value in unique], format=",d")
    return alt.Axis(grid=False, format="~e" if log else "~f", tickCount=8)


def scatter(
    points: pd.DataFrame, metric: str, *, across: str, title: str, panels: Sequence[str], log: bool = False
) -> alt.FacetChart:
    """A metric over the column `across`: one dot per split, coloured by severity, in one panel per scheme.

    points   the columns panel, corruption, severity, value and `across`
    title    of the x axis
    log      whether the x axis is symmetric logarithmic, which can show 0
    """
    info = metric_info(metric)
    points = points.assign(level=[SEVERITY_STYLES[severity].series for severity in points["severity"]])
    legend = series_legend("circle", columns=6)
    chart = (
        alt.Chart()
        .mark_circle(size=34, opacity=0.9)
        .encode(
            x=alt.X(
                f"{across}:Q",
                title=title,
                scale=alt.Scale(type="symlog" if log else "linear"),
                axis=plain_axis(tickCount=5, format="~s"),
            ),
            y=alt.Y(
                "value:Q",
                title=info.label,
                scale=alt.Scale(zero=info.better == "lower"),
                axis=plain_axis(format=info.axis_format, tickCount=5),
            ),
            **by_series(SEVERITY_STYLES, legend, column="level", color="colour"),
            tooltip=[
                alt.Tooltip("corruption:N"),
                alt.Tooltip("level:N", title="shift"),
                alt.Tooltip(f"{across}:Q", title=title, format=".3~g"),
                alt.Tooltip("value:Q", title=info.label, format=info.tooltip_format),
            ],
        )
        .properties(width=220, height=220)
    )
    return facets(
        chart,
        "panel:N",
        points,
        sort=list(panels),
        title=f"{info.title} over {title}",
        description=f"Scatter plots of {info.label} over {title}, a dot for each split: {', '.join(panels)}.",
    )
