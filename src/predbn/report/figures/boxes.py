"""Box plots over severity, as the paper draws them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from predbn.common import ReportError

from ..frames import averaged, checked, of_metric, readable
from ..looks import Look, looks
from ..meanings import Meaning, meaning
from .parts import SEVERITY_LABEL, inline, series_scale

__all__ = ["SEVERITY", "Places", "box_chart", "boxes", "five_numbers"]

OVER = ("corruption", "model", "seed")


@dataclass(frozen=True)
class Places:
    """What stands on the x axis: the column, its title, the order of its values, an expression for their labels, and
    whether a place has boxes of several series, beside each other."""

    column: str
    title: str
    order: Sequence[Any] | None = None
    label: str | None = None
    shared: bool = True


SEVERITY = Places("severity", "severity of the shift", label=SEVERITY_LABEL)


def five_numbers(values: pd.DataFrame, by: str = "severity") -> pd.DataFrame:
    """Minimum, quartiles and maximum of every (series, place on the x axis): all that a box needs."""
    finite = values[np.isfinite(values["value"])]
    grouped = finite.groupby(["series", by], sort=False)["value"]
    columns = {"low": 0.0, "lower": 0.25, "median": 0.5, "upper": 0.75, "high": 1.0}
    quantiles = {name: grouped.quantile(share) for name, share in columns.items()}
    numbers: pd.DataFrame = pd.DataFrame(quantiles).reset_index()
    return numbers


def _tip(over: str, places: Places, known: Meaning) -> alt.ExprRef:
    """What pointing at a dot shows, as an expression: the selection of the nearest dot wraps each datum in another,
    which tooltip channels of text fields do not see through."""
    shown = {
        over: "d.what",
        readable(places.column): f"d.{places.column}",
        "series": "d.series",
        known.label: "format(d.value, '.1%')" if known.percent else "format(d.value, '.3f')",
    }
    entries = (f"{json.dumps(name)}: {value.replace('d.', '(datum.datum || datum).')}" for name, value in shown.items())
    return alt.ExprRef("{" + ", ".join(entries) + "}")


def boxes(frame: pd.DataFrame, metric: str, *, over: str = "corruption") -> alt.LayerChart:
    """For each severity and each series, the distribution of a metric over the corruptions.

    A box has the quartiles and the median, its whiskers end at the minimum and the maximum. Every dot is one
    corruption; pointing at a dot names it, and shows where the same corruption lies everywhere else. `over`
    may be "model" or "seed" instead, where there is only one kind of shift.
    """
    if over not in OVER:
        raise ReportError(f"Boxes cannot be drawn over {over!r}: use {', '.join(OVER)}.")
    rows = of_metric(checked(frame), metric)
    values = averaged(rows, over)
    values = values.assign(what=values[over].map(lambda name: readable(str(name))))
    return box_chart(values, metric, looks(rows), over=over)


def box_chart(
    values: pd.DataFrame, metric: str, drawn: Sequence[Look], *, places: Places = SEVERITY, over: str = "corruption"
) -> alt.LayerChart:
    """The boxes of values that are at hand: the columns series, `what` (the name of a dot), value, and the place.

    `drawn` has the look of every series, in the order in which they stand beside each other.
    """
    known = meaning(metric)
    values = values[["series", places.column, "what", "value"]]
    domain = [look.series for look in drawn]
    colour = series_scale(drawn, "colour")
    legend = alt.Legend(orient="top", columns=2, symbolType="square")
    line = alt.Stroke("series:N", scale=colour, title=None, legend=legend)
    fill = alt.Fill("series:N", scale=series_scale(drawn, "area"), title=None, legend=legend)
    label = alt.Undefined if places.label is None else places.label
    x = alt.X(
        f"{places.column}:O",
        title=places.title,
        sort=alt.Undefined if places.order is None else list(places.order),
        axis=alt.Axis(labelAngle=0, labelExpr=label, grid=False, ticks=False),
        scale=alt.Scale(paddingInner=0.22 if places.shared else 0.5, paddingOuter=0.1 if places.shared else 0.3),
    )
    offset: Any = alt.Undefined
    if places.shared:
        offset = alt.XOffset("series:N", scale=alt.Scale(domain=domain, paddingInner=0.2))
    scale = alt.Scale(zero=known.better == "lower", nice=True)

    def y(field: str) -> alt.Y:
        axis = alt.Axis(format=known.axis_format, tickCount=6, domain=False, ticks=False)
        return alt.Y(f"{field}:Q", title=None, axis=axis, scale=scale)

    box = alt.Chart(inline(five_numbers(values, places.column))).encode(x=x, xOffset=offset)
    whiskers = [
        box.mark_rule(strokeWidth=1).encode(y=y(start), y2=alt.Y2(f"{end}:Q"), stroke=line)
        for start, end in (("low", "lower"), ("upper", "high"))
    ]
    body = box.mark_bar(strokeWidth=1).encode(y=y("lower"), y2=alt.Y2("upper:Q"), stroke=line, fill=fill)
    median = box.mark_bar(strokeWidth=2.5, fillOpacity=0).encode(y=y("median"), y2=alt.Y2("median:Q"), stroke=line)
    pointed = alt.selection_point(
        name="pointed", on="pointerover", clear="pointerout", nearest=True, fields=["what"], empty=False
    )
    dots = (
        alt.Chart(inline(values))
        .mark_point(filled=False, strokeWidth=1.5, tooltip=_tip(over, places, known))
        .encode(
            x=x,
            xOffset=offset,
            y=y("value"),
            stroke=line,
            opacity=alt.condition(pointed, alt.value(1), alt.value(0.45)),
            size=alt.condition(pointed, alt.value(50), alt.value(3)),
        )
        .add_params(pointed)
    )
    direction = f" ({known.direction})" if known.direction else ""
    chart: alt.LayerChart = alt.layer(*whiskers, body, median, dots).properties(
        width=640,
        height=300,
        title=f"{known.label[0].upper()}{known.label[1:]}{direction}",
        description=f"Box plots of {known.label} by {readable(places.column)}, one box a series: {', '.join(domain)}.",
    )
    return chart
