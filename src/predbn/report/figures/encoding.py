"""What the figures share: inline data with few digits, channels that give each series its style, and panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from ..style import SeriesStyle

DIGITS = 5

_CHANNELS = {"color": alt.Color, "stroke": alt.Stroke, "fill": alt.Fill, "strokeDash": alt.StrokeDash}


def inline_data(frame: pd.DataFrame) -> alt.InlineData:
    """The frame as part of the chart's specification, without Altair's limit on rows: the data here is small."""
    rows = [{str(key): _shorten(value) for key, value in row.items()} for row in frame.to_dict("records")]
    return alt.InlineData(values=rows)


def _shorten(value: Any) -> Any:
    """Five significant digits are more than a chart shows. Values that are not finite cannot be drawn or be JSON."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def by_series(
    styles: Sequence[SeriesStyle], legend: alt.Legend, *, column: str = "series", **channels: str
) -> dict[str, Any]:
    """Channels of an encoding, each of which shows an attribute of the series' styles: ``stroke="colour"``.

    `column` has the names of the series.
    """
    names = [style.series for style in styles]
    encoding = {}
    for channel, attribute in channels.items():
        values = [getattr(style, attribute) for style in styles]
        scale = alt.Scale(type="ordinal", domain=names, range=values)
        encoding[channel] = _CHANNELS[channel](f"{column}:N", title=None, legend=legend, scale=scale)
    return encoding


def plain_axis(**options: Any) -> alt.Axis:
    return alt.Axis(domain=False, ticks=False, **options)


def facets(
    panel: Any,
    by: str,
    data: pd.DataFrame,
    *,
    columns: int = 3,
    sort: Any = alt.Undefined,
    label: Any = alt.Undefined,
    own_axes: bool = False,
    **text: str,
) -> alt.FacetChart:
    """One panel per value of a column such as `place:N`; `text` is title and description of the whole.

    label      a Vega expression for what is above each panel, by default the value of the column
    own_axes   whether each panel has its own axes
    """
    facet = alt.Facet(by, title=None, sort=sort, header=alt.Header(labelExpr=label, labelFontWeight=600))
    chart: alt.FacetChart = panel.facet(facet=facet, columns=columns, data=inline_data(data)).properties(**text)
    return chart.resolve_scale(x="independent", y="independent") if own_axes else chart


def series_legend(symbol: str = "circle", **options: Any) -> alt.Legend:
    """The legend of a chart that is shown by itself; a page has its own."""
    return alt.Legend(orient="top", columns=options.pop("columns", 2), symbolType=symbol, **options)


def names_of(styles: Sequence[SeriesStyle]) -> str:
    return ", ".join(style.series for style in styles)


def diagonal() -> alt.Chart:
    """The line from (0, 0) to (1, 1)."""
    corners = alt.InlineData(values=[{"at": 0}, {"at": 1}])
    line: alt.Chart = alt.Chart(corners).mark_line(style="diagonal").encode(x="at:Q", y="at:Q")
    return line
