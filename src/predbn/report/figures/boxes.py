"""Box plots, by severity as the paper draws them, or by anything else on the x axis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ..frames import check_results, display_name, mean_values, rows_of_metric
from ..metric_info import MetricInfo, metric_info
from ..style import SeriesStyle, series_styles
from .encoding import by_series, inline_data, names_of, plain_axis, series_legend


@dataclass(frozen=True)
class XAxis:
    """What is on the x axis of box plots.

    column       of the values
    title        of the axis
    order        of the column's values
    label_expr   a Vega expression for the labels
    shared       whether the series share each position, with their boxes side by side
    """

    column: str
    title: str
    order: Sequence[Any] | None = None
    label_expr: str | None = None
    shared: bool = True


SEVERITY_AXIS = XAxis("severity", "severity of the shift", label_expr="datum.value == 0 ? 'clean' : datum.value")


def boxes(frame: pd.DataFrame, metric: str, intervals: pd.DataFrame | None = None) -> alt.LayerChart:
    """For each severity and series, the distribution of a metric over the corruptions.

    A box shows the quartiles and the median; its whiskers end at the minimum and the maximum. Every dot is one
    corruption; pointing at a dot names it, and highlights the same corruption everywhere else. `intervals`, from
    `mean_intervals`, are drawn with the means.
    """
    rows = rows_of_metric(check_results(frame), metric)
    values = mean_values(rows)
    values = values.assign(what=values["corruption"].map(display_name))
    means = None if intervals is None else intervals[intervals["metric"] == metric].dropna(subset=["low"])
    return box_chart(values, metric, series_styles(rows), means=means)


def box_chart(
    values: pd.DataFrame,
    metric: str,
    styles: Sequence[SeriesStyle],
    *,
    x_axis: XAxis = SEVERITY_AXIS,
    over: str = "corruption",
    means: pd.DataFrame | None = None,
) -> alt.LayerChart:
    """Box plots of values with the columns series, `what` (the name of a dot), value, and the column of the x axis.

    styles   of every series, in the order in which they are drawn side by side
    over     what a dot is, for its tooltip
    means    mean, low and high of series and positions on the x axis, drawn as a dot with a bar
    """
    info = metric_info(metric)
    values = values[["series", x_axis.column, "what", "value"]]
    legend = series_legend("square")
    line, fill = by_series(styles, legend, stroke="colour"), by_series(styles, legend, fill="area")
    x = alt.X(
        f"{x_axis.column}:O",
        title=x_axis.title,
        sort=alt.Undefined if x_axis.order is None else list(x_axis.order),
        axis=alt.Axis(labelAngle=0, labelExpr=x_axis.label_expr or alt.Undefined, grid=False, ticks=False),
        scale=alt.Scale(paddingInner=0.22 if x_axis.shared else 0.5, paddingOuter=0.1 if x_axis.shared else 0.3),
    )
    offset: Any = alt.Undefined
    if x_axis.shared:
        domain = [style.series for style in styles]
        offset = alt.XOffset("series:N", scale=alt.Scale(domain=domain, paddingInner=0.2))

    def y(field: str) -> alt.Y:
        axis = plain_axis(format=info.axis_format, tickCount=6)
        return alt.Y(f"{field}:Q", title=None, axis=axis, scale=alt.Scale(zero=info.better == "lower", nice=True))

    box = alt.Chart(inline_data(five_numbers(values, x_axis.column))).encode(x=x, xOffset=offset)
    whiskers = [
        box.mark_rule(strokeWidth=1).encode(y=y(start), y2=alt.Y2(f"{end}:Q"), **line)
        for start, end in (("low", "lower"), ("upper", "high"))
    ]
    body = box.mark_bar(strokeWidth=1).encode(y=y("lower"), y2=alt.Y2("upper:Q"), **line, **fill)
    median = box.mark_bar(strokeWidth=2.5, fillOpacity=0).encode(y=y("median"), y2=alt.Y2("median:Q"), **line)
    pointed = alt.selection_point(
        name="pointed", on="pointerover", clear="pointerout", nearest=True, fields=["what"], empty=False
    )
    dots = (
        alt.Chart(inline_data(values))
        .mark_point(filled=False, strokeWidth=1.5, tooltip=_tooltip(over, x_axis, info))
        .encode(
            x=x,
            xOffset=offset,
            y=y("value"),
            **line,
            opacity=alt.condition(pointed, alt.value(1), alt.value(0.45)),
            size=alt.condition(pointed, alt.value(50), alt.value(3)),
        )
        .add_params(pointed)
    )
    intervals = []
    if means is not None and len(means):
        columns = ["series", x_axis.column, "mean", "low", "high"]
        mean = alt.Chart(inline_data(means[columns])).encode(x=x, xOffset=offset)
        intervals = [
            mean.mark_rule(style="interval").encode(y=y("low"), y2=alt.Y2("high:Q")),
            mean.mark_point(style="interval", size=16, filled=True).encode(y=y("mean")),
        ]
    by = display_name(x_axis.column)
    chart: alt.LayerChart = alt.layer(*whiskers, body, median, *intervals, dots).properties(
        width=640,
        height=300,
        title=info.chart_title,
        description=f"Box plots of {info.label} by {by}, one box per series: {names_of(styles)}.",
    )
    return chart


def five_numbers(values: pd.DataFrame, by: str = "severity") -> pd.DataFrame:
    """Minimum, quartiles and maximum of every (series, position on the x axis)."""
    finite = values[np.isfinite(values["value"])]
    grouped = finite.groupby(["series", by], sort=False)["value"]
    columns = {"low": 0.0, "lower": 0.25, "median": 0.5, "upper": 0.75, "high": 1.0}
    numbers: pd.DataFrame = pd.DataFrame({name: grouped.quantile(q) for name, q in columns.items()}).reset_index()
    return numbers


def _tooltip(over: str, x_axis: XAxis, info: MetricInfo) -> alt.ExprRef:
    """The tooltip of a dot, as an expression: the selection of the nearest dot wraps each datum in another datum,
    which the usual tooltip channel does not look into."""
    fields = {
        over: "d.what",
        display_name(x_axis.column): f"d.{x_axis.column}" if x_axis is not SEVERITY_AXIS else "d.severity || 'clean'",
        "series": "d.series",
        info.label: "format(d.value, '.1%')" if info.percent else "format(d.value, '.3f')",
    }
    entries = (
        f"{json.dumps(name)}: {value.replace('d.', '(datum.datum || datum).')}" for name, value in fields.items()
    )
    return alt.ExprRef("{" + ", ".join(entries) + "}")
