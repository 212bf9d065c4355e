"""How far each layer moved, from the first to the last."""

from __future__ import annotations

import altair as alt
import pandas as pd

from predbn.common import ReportError
from predbn.diagnostics import Diagnosis, threshold

from ..looks import GREY, Look
from ..sides import look_of
from .parts import inline, series_legend, series_scale

__all__ = ["depth", "depth_looks"]


def depth_looks(diagnosis: Diagnosis) -> list[Look]:
    """The series of the figure: what has a distance from the reference with the training statistics."""
    return [look_of(data, strategy) for data, strategy, _ in list(diagnosis.sides())[1:]]


def depth(diagnosis: Diagnosis) -> alt.LayerChart:
    """A row for each layer, in the order of the calls, with its distance from the reference under each strategy.

    The grey bar reaches as far as a layer may move without counting as shifted.
    """
    looks, legend = depth_looks(diagnosis), series_legend()
    rows = [
        {
            "layer": row.layer,
            "series": look_of(row.data, row.strategy).series,
            "distance": row.distance,
            "outside": row.outside,
            "divergence": row.divergence,
            "threshold": threshold(row),
        }
        for row in diagnosis.shifts
        if (row.data, row.strategy) != ("reference", "train")
    ]
    if not rows:
        raise ReportError("The diagnosis has no layers: the model gave neither batch norm outputs nor logits.")
    frame = pd.DataFrame(rows)
    layers = list(dict.fromkeys(frame["layer"]))
    spans: pd.DataFrame = (
        frame[frame["series"].str.startswith("shifted")]
        .groupby("layer", sort=False)
        .agg(low=("distance", "min"), high=("distance", "max"), threshold=("threshold", "max"))
        .reset_index()
    )
    step = 19 if len(layers) <= 40 else 13 if len(layers) <= 80 else 9
    y = alt.Y(
        "layer:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=layers, padding=0.5),
        axis=alt.Axis(
            domain=False, ticks=False, labelLimit=150, labelFontSize=min(11, step), labelOverlap=True, grid=False
        ),
    )

    def x(field: str) -> alt.X:
        axis = alt.Axis(domain=False, ticks=False, tickCount=6)
        return alt.X(f"{field}:Q", title="distance in standard deviations", axis=axis)

    base = alt.Chart(inline(spans)).encode(y=y)
    chance = base.mark_bar(size=max(4, step - 7), color=GREY, opacity=0.18).encode(x=x("threshold"))
    span = base.mark_rule(color=GREY, opacity=0.6).encode(x=x("low"), x2=alt.X2("high:Q"))
    dots = (
        alt.Chart(inline(frame))
        .mark_point(size=52 if step > 10 else 26, strokeWidth=1.5, opacity=1)
        .encode(
            y=y,
            x=x("distance"),
            stroke=alt.Stroke("series:N", title=None, legend=legend, scale=series_scale(looks, "colour")),
            fill=alt.Fill("series:N", title=None, legend=legend, scale=series_scale(looks, "area")),
            tooltip=[
                alt.Tooltip("layer:N", title="layer"),
                alt.Tooltip("series:N", title="data · strategy"),
                alt.Tooltip("distance:Q", title="distance", format=".3f"),
                alt.Tooltip("outside:Q", title="outside the range", format=".1%"),
                alt.Tooltip("divergence:Q", title="divergence, nats", format=".2f"),
            ],
        )
    )
    chart: alt.LayerChart = alt.layer(chance, span, dots).properties(
        width=640,
        height=step * len(layers),
        title="How far each layer moved from the reference",
        description="Distance of each layer's outputs from the reference, by layer: "
        + ", ".join(look.series for look in looks),
    )
    return chart
