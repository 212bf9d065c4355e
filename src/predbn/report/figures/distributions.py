"""Distributions side by side: one small panel per channel or dimension, one curve per series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd
from torch import Tensor

from predbn.common import ReportError
from predbn.diagnostics import Diagnosis

from ..style import SeriesStyle
from .diagnosis import profile_styles, profiles
from .encoding import by_series, facets, names_of, outlines, series_legend

MERGED_BINS = 2
VISIBLE = 2e-3


def densities(
    values: pd.DataFrame, styles: Sequence[SeriesStyle], *, title: str, panels: Sequence[str], columns: int = 4
) -> alt.FacetChart:
    """Histograms as outlines, from the columns panel, series, x (the middle of a bin) and density.

    Each panel has its own axes, because channels differ in scale; only shape and location are compared.
    """
    legend = series_legend("stroke", columns=3, symbolStrokeWidth=2)
    chart = (
        alt.Chart()
        .mark_area(interpolate="step", fillOpacity=0.12, line={"strokeWidth": 1.5})
        .encode(
            x=alt.X(
                "x:Q",
                title=None,
                axis=alt.Axis(grid=False, tickCount=4, ticks=False),
                scale=alt.Scale(zero=False, nice=False),
            ),
            y=alt.Y("density:Q", title=None, axis=None, stack=None),
            **by_series(styles, legend, color="colour"),
        )
        .properties(width=150, height=90)
    )
    text = {"title": title, "description": f"{title}: {names_of(styles)}."}
    return facets(chart, "panel:N", values, columns=columns, own_axes=True, sort=list(panels), **text)


def channels(diagnosis: Diagnosis, layer: str, *, most: int = 6) -> alt.FacetChart:
    """The channels of a layer that moved most: on the reference, on the shifted data, and with the strategy.

    As in the paper's figure 2. Bins are merged in pairs, and cut off where no distribution has anything worth seeing.
    Values beyond all bins are drawn in the outermost.
    """
    if layer not in diagnosis.reference.distributions:
        available = ", ".join(diagnosis.reference.distributions)
        raise ReportError(f"There is no layer {layer!r} to draw: there are {available}.")
    rows: list[dict[str, Any]] = []
    for channel in diagnosis.channels(layer)[:most]:
        rows += _channel_densities(diagnosis, layer, channel)
    base = alt.Chart().encode(
        x=alt.X(
            "value:Q", title=None, axis=alt.Axis(grid=False, ticks=False, tickCount=4), scale=alt.Scale(zero=False)
        ),
        y=alt.Y("density:Q", title=None, axis=None, stack=None),
    )
    area, line = outlines(base, profile_styles(diagnosis), "monotone", opacity=0.16)
    tooltip = [
        alt.Tooltip("series:N", title="data · strategy"),
        alt.Tooltip("value:Q", title="value", format=".3g"),
        alt.Tooltip("density:Q", title="density", format=".3g"),
    ]
    return facets(
        alt.layer(area, line.encode(tooltip=tooltip)).properties(width=190, height=110),
        "channel:N",
        pd.DataFrame(rows),
        sort=None,
        label="'channel ' + datum.value",
        own_axes=True,
        title=f"Distributions of the channels of {layer}",
        description=f"Densities of the channels of {layer} that moved most, a panel for each channel.",
    )


def _channel_densities(diagnosis: Diagnosis, layer: str, channel: int) -> list[dict[str, Any]]:
    curves: dict[str, Tensor] = {}
    bins = diagnosis.reference.distributions[layer].histogram.bins.take(slice(channel, channel + 1))
    usable = 3 * bins.inside // MERGED_BINS * MERGED_BINS
    edges = bins.edges[0, : usable + 1 : MERGED_BINS]
    for style, profile in profiles(diagnosis):
        counts = profile.distributions[layer].histogram.counts[channel].double()
        merged = counts[1 : usable + 1].view(-1, MERGED_BINS).sum(1)
        merged[0] += counts[0]
        merged[-1] += counts[usable + 1 :].sum()
        curves[style.series] = merged / counts.sum() / (MERGED_BINS * bins.width)
    centres = ((edges[:-1] + edges[1:]) / 2).tolist()
    visible = [
        any(float(curve[index]) > VISIBLE * float(curve.max()) for curve in curves.values())
        for index in range(len(centres))
    ]
    first, last = max(0, visible.index(True) - 1), len(visible) - visible[::-1].index(True) + 1
    return [
        {"channel": str(channel), "series": series, "value": value, "density": density}
        for series, curve in curves.items()
        for value, density in zip(centres[first:last], curve.tolist()[first:last], strict=True)
    ]
