"""What the figures share: inline data with few digits, and channels that give each series its style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import altair as alt
import pandas as pd

from ..style import SeriesStyle

DIGITS = 5

Channel = TypeVar("Channel", alt.Color, alt.Stroke, alt.Fill, alt.StrokeDash)


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
    channel: type[Channel],
    styles: Sequence[SeriesStyle],
    legend: alt.Legend,
    attribute: Literal["colour", "area", "dash"] = "colour",
    *,
    column: str = "series",
) -> Channel:
    """A channel such as `alt.Stroke` that shows an attribute of each series' style; `column` has the series' names."""
    domain, values = [style.series for style in styles], [getattr(style, attribute) for style in styles]
    return channel(
        f"{column}:N", title=None, legend=legend, scale=alt.Scale(type="ordinal", domain=domain, range=values)
    )


def series_legend(symbol: str = "circle", **options: Any) -> alt.Legend:
    """The legend of a chart that is shown by itself; a page has its own."""
    return alt.Legend(orient="top", columns=options.pop("columns", 2), symbolType=symbol, **options)


def names_of(styles: Sequence[SeriesStyle]) -> str:
    """The series, for the description of a chart."""
    return ", ".join(style.series for style in styles)


def diagonal() -> alt.Chart:
    """The line from (0, 0) to (1, 1)."""
    corners = alt.InlineData(values=[{"at": 0}, {"at": 1}])
    line: alt.Chart = alt.Chart(corners).mark_line(style="diagonal").encode(x="at:Q", y="at:Q")
    return line
