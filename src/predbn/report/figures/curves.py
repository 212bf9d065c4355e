"""Curves: a metric as something grows, with the range over repetitions as a band."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from ..looks import Look
from ..meanings import meaning
from .parts import inline, series_scale

__all__ = ["curves", "ranges"]

_MOST_NAMED = 10


def ranges(values: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean, minimum and maximum of the column `value` for every (series, by)."""
    grouped = values.groupby(["series", by], sort=False)["value"]
    table: pd.DataFrame = grouped.agg(["mean", "min", "max"]).reset_index()
    return table


def _axis(measured: pd.Series, log: bool) -> alt.Axis:
    """Few whole numbers, such as sizes of batches, are all named, and nothing else."""
    found = sorted(measured.unique())
    if log and len(found) <= _MOST_NAMED and all(float(each).is_integer() for each in found):
        return alt.Axis(grid=False, values=[int(each) for each in found], format=",d")
    return alt.Axis(grid=False, format="~e" if log else "~f", tickCount=8)


def curves(
    values: pd.DataFrame,
    metric: str,
    drawn: Sequence[Look],
    *,
    by: str,
    title: str,
    log: bool = True,
    log_value: bool = False,
    mark: float | None = None,
) -> alt.LayerChart:
    """A line through the means of each series, and a band from the lowest to the highest value.

    values     the columns series, `by` (a number) and value, a row a repetition
    title      of the x axis
    log        whether x is on a logarithmic scale, `log_value` whether y is
    mark       a value of x to mark by a vertical line, such as the default
    """
    known = meaning(metric)
    legend = alt.Legend(orient="top", columns=2, symbolType="stroke", symbolStrokeWidth=2, symbolOpacity=1)
    colour = alt.Color("series:N", title=None, scale=series_scale(drawn, "colour"), legend=legend)
    dash = alt.StrokeDash("series:N", title=None, scale=series_scale(drawn, "dash"), legend=legend)
    x = alt.X(
        f"{by}:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False) if log else alt.Scale(nice=False, zero=False),
        axis=_axis(values[by], log),
    )
    scale = alt.Scale(type="log") if log_value else alt.Scale(zero=known.better == "lower")
    number = "~e" if log_value else known.axis_format
    axis = alt.Axis(format=number, tickCount=6, domain=False, ticks=False, grid=not log_value)
    base = alt.Chart(inline(ranges(values, by))).encode(x=x)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=axis)

    band = base.mark_area(opacity=0.18).encode(y=y("min"), y2="max:Q", color=colour)
    line = base.mark_line(strokeWidth=2).encode(y=y("mean"), color=colour, strokeDash=dash)
    shown = ".1%" if known.percent else ".3~g"
    dots = base.mark_circle(size=40, opacity=1).encode(
        y=y("mean"),
        color=colour,
        tooltip=[
            alt.Tooltip("series:N"),
            alt.Tooltip(f"{by}:Q", title=title),
            alt.Tooltip("mean:Q", title=known.label, format=shown),
            alt.Tooltip("min:Q", title="lowest", format=shown),
            alt.Tooltip("max:Q", title="highest", format=shown),
        ],
    )
    marked = []
    if mark is not None:
        marked.append(alt.Chart(inline(pd.DataFrame({by: [mark]}))).mark_rule(style="diagonal").encode(x=x))
    direction = f" ({known.direction})" if known.direction else ""
    chart: alt.LayerChart = alt.layer(*marked, band, line, dots).properties(
        width=640,
        height=300,
        title=f"{known.label[0].upper()}{known.label[1:]}{direction}",
        description=f"Curves of {known.label} over {title}: {', '.join(look.series for look in drawn)}.",
    )
    return chart
