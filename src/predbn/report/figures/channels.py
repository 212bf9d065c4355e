"""Distributions of single channels, as the paper's figure 2 draws them: three of them over common bins."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
from torch import Tensor

from predbn.common import ReportError
from predbn.diagnostics import Diagnosis

from ..sides import sides
from .parts import inline, series_legend, series_scale

__all__ = ["channels"]

MERGED = 2
VISIBLE = 2e-3


def channels(diagnosis: Diagnosis, layer: str, *, most: int = 6) -> alt.FacetChart:
    """The channels of a layer that moved most: on the reference, on the shifted data, and with the strategy.

    Bins are taken two by two, and cut off where no distribution has anything worth seeing. What lies beyond all bins
    is drawn in the outermost.
    """
    if layer not in diagnosis.reference.distributions:
        there = ", ".join(diagnosis.reference.distributions)
        raise ReportError(f"There is no layer {layer!r} to draw: there are {there}.")
    rows: list[dict[str, Any]] = []
    for channel in diagnosis.channels(layer)[:most]:
        rows += _densities(diagnosis, layer, channel)
    looks = [look for look, _ in sides(diagnosis)]
    legend = series_legend("stroke")
    base = alt.Chart().encode(
        x=alt.X(
            "value:Q", title=None, axis=alt.Axis(grid=False, ticks=False, tickCount=4), scale=alt.Scale(zero=False)
        ),
        y=alt.Y("density:Q", title=None, axis=None, stack=None),
    )
    area = base.mark_area(interpolate="monotone", opacity=0.16).encode(
        fill=alt.Fill("series:N", title=None, legend=legend, scale=series_scale(looks, "colour"))
    )
    line = base.mark_line(interpolate="monotone", strokeWidth=1.5).encode(
        stroke=alt.Stroke("series:N", title=None, legend=legend, scale=series_scale(looks, "colour")),
        strokeDash=alt.StrokeDash("series:N", title=None, legend=legend, scale=series_scale(looks, "dash")),
        tooltip=[
            alt.Tooltip("series:N", title="data · strategy"),
            alt.Tooltip("value:Q", title="value", format=".3g"),
            alt.Tooltip("density:Q", title="density", format=".3g"),
        ],
    )
    panel = alt.layer(area, line).properties(width=190, height=110)
    named = alt.Header(labelExpr="'channel ' + datum.value", labelFontWeight=600)
    chart: alt.FacetChart = (
        panel.facet(
            facet=alt.Facet("channel:N", title=None, sort=None, header=named), columns=3, data=inline(_frame(rows))
        )
        .resolve_scale(x="independent", y="independent")
        .properties(
            title=f"Distributions of the channels of {layer}",
            description=f"Densities of the channels of {layer} that moved most, a panel for each channel.",
        )
    )
    return chart


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame(rows)
    return frame


def _densities(diagnosis: Diagnosis, layer: str, channel: int) -> list[dict[str, Any]]:
    curves: dict[str, Tensor] = {}
    bins = diagnosis.reference.distributions[layer].histogram.bins.take(slice(channel, channel + 1))
    usable = 3 * bins.inside // MERGED * MERGED
    middles = bins.edges[0, : usable + 1 : MERGED]
    for look, profile in sides(diagnosis):
        counts = profile.distributions[layer].histogram.counts[channel].double()
        inner = counts[1 : usable + 1].view(-1, MERGED).sum(1)
        inner[0] += counts[0]
        inner[-1] += counts[usable + 1 :].sum()
        curves[look.series] = inner / counts.sum() / (MERGED * bins.width)
    centres = ((middles[:-1] + middles[1:]) / 2).tolist()
    seen = [
        any(float(curve[place]) > VISIBLE * float(curve.max()) for curve in curves.values())
        for place in range(len(centres))
    ]
    first, last = max(0, seen.index(True) - 1), len(seen) - seen[::-1].index(True) + 1
    return [
        {"channel": str(channel), "series": series, "value": value, "density": density}
        for series, curve in curves.items()
        for value, density in zip(centres[first:last], curve.tolist()[first:last], strict=True)
    ]
