"""Where a strategy helps and where it hurts: its gain over the baseline by corruption and severity."""

from __future__ import annotations

import math

import altair as alt
import pandas as pd

from ..frames import BASELINE, CLEAN, checked, families, main_method, of_metric, readable
from ..gains import gains
from ..meanings import meaning
from .parts import inline

__all__ = ["heatmap"]

ROW = 21
STRONG = 0.55


def heatmap(
    frame: pd.DataFrame,
    metric: str,
    *,
    strategy: str = "batch",
    baseline: str = BASELINE,
    method: str | None = None,
) -> alt.LayerChart:
    """The gain of `strategy` over `baseline`, one cell a split, families of corruptions together.

    The scale diverges from 0 and is symmetric; blue is better also for metrics of which less is better. The
    clean test set has no severity, so its cell spans the row.
    """
    rows = checked(frame)
    method = main_method(of_metric(rows, metric)) if method is None else method
    known = meaning(metric)
    cells = gains(rows, metric, strategy=strategy, baseline=baseline, method=method)
    groups = families(list(cells["corruption"]))
    headings = [family.capitalize() for family in groups]
    domain = ["Clean test set"] if (cells["corruption"] == CLEAN).any() else []
    for heading, members in zip(headings, groups.values(), strict=True):
        domain += [heading, *map(readable, members)]
    size = cells["gain"].abs()
    extent = float(size[size < math.inf].max())
    extent = extent if extent > 0 else 1.0
    cells = cells.assign(
        row=[domain[0] if name == CLEAN else readable(name) for name in cells["corruption"]],
        text=cells["gain"].map(known.change),
        strong=size > STRONG * extent,
        was=cells["before"].map(known.text),
        now=cells["after"].map(known.text),
    )
    shifted = cells[cells["corruption"] != CLEAN]
    clean = cells[cells["corruption"] == CLEAN]

    heading = f"indexof({headings!r}, datum.value) >= 0"
    y = alt.Y(
        "row:N",
        title=None,
        scale=alt.Scale(domain=domain, padding=0),
        axis=alt.Axis(
            domain=False,
            ticks=False,
            labelLimit=140,
            labelFontWeight=alt.when(heading).then(alt.value(600)).otherwise(alt.value(400)),
        ),
    )
    points = f"format(datum.value * {100 if known.percent else 1}, '+~g')"
    x = alt.X(
        "severity:O",
        title="severity",
        axis=alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False, titlePadding=4),
        scale=alt.Scale(padding=0),
    )
    colour = alt.Color(
        "gain:Q",
        title=f"gain in {known.change_unit}",
        scale=alt.Scale(domain=[-extent, extent], domainMid=0, range="diverging", interpolate="lab"),
        legend=alt.Legend(orient="bottom", gradientLength=220, tickCount=5, labelExpr=points),
    )
    tooltip = [
        alt.Tooltip("row:N", title="corruption"),
        alt.Tooltip("severity:O", title="severity"),
        alt.Tooltip("text:N", title="better by"),
        alt.Tooltip("was:N", title=baseline),
        alt.Tooltip("now:N", title=strategy),
    ]
    ink = alt.when("datum.strong").then(alt.value("#ffffff"))
    number = {"fontSize": 10.5, "baseline": "middle"}

    columns = ["row", "severity", "gain", "text", "strong", "was", "now"]
    layers: list[alt.Chart] = []
    if not shifted.empty:
        grid = alt.Chart(inline(shifted[columns])).encode(y=y, x=x)
        layers.append(grid.mark_rect(style="cell-outline").encode(color=colour, tooltip=tooltip))
        layers.append(grid.mark_text(**number).encode(text="text:N", color=ink))
    if not clean.empty:
        wide = alt.Chart(inline(clean[columns])).encode(y=y)
        layers.append(
            wide.mark_rect(style="cell-outline").encode(
                x=alt.value(0), x2=alt.value("width"), color=colour, tooltip=tooltip
            )
        )
        layers.append(wide.mark_text(**number).encode(text="text:N", color=ink))
    chart: alt.LayerChart = alt.layer(*layers).properties(
        width=380,
        height=ROW * len(domain),
        title=alt.Title(
            f"What {strategy} gains over {baseline}: {known.label}",
            subtitle=f"method {method}, in {known.change_unit}; blue is better, orange is worse",
        ),
        description=f"Heat map of the gain in {known.label} of {strategy} over {baseline} by corruption and severity.",
    )
    return chart
