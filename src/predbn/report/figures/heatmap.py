"""The gain of a strategy over the baseline by corruption and severity: where it helps and where it hurts."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd

from ..frames import (
    BASELINE,
    CLEAN,
    check_results,
    display_name,
    gain_over_baseline,
    group_by_family,
    main_method,
    rows_of_metric,
    severity_label,
)
from ..metric_info import metric_info
from ..strategy_info import strategy_labels
from .encoding import inline_data, plain_axis

ROW_HEIGHT = 21
STRONG = 0.55
"""Cells of more than this share of the largest gain have a dark colour, so their text is white."""


def heatmap(frame: pd.DataFrame, metric: str, *, strategy: str = "batch", method: str | None = None) -> alt.LayerChart:
    """The gain of `strategy` over `train`: one cell per split, corruptions sorted by family.

    The colour scale is symmetric about 0; blue is better whichever way the metric points. The clean test set has no
    severity, so its cell spans the row.
    """
    rows = check_results(frame)
    method = main_method(rows_of_metric(rows, metric)) if method is None else method
    cells = gain_over_baseline(rows, metric, strategy=strategy, method=method)
    info, label = metric_info(metric), strategy_labels(rows["strategy"].unique())[strategy]
    families = group_by_family(list(cells["corruption"]))
    headings = [family.capitalize() for family in families]
    domain = ["Clean test set"] if (cells["corruption"] == CLEAN).any() else []
    for heading, members in zip(headings, families.values(), strict=True):
        domain += [heading, *map(display_name, members)]
    size = cells["gain"].abs()
    extent = float(size[size < math.inf].max())
    extent = extent if extent > 0 else 1.0
    cells = cells.assign(
        row=[domain[0] if name == CLEAN else display_name(name) for name in cells["corruption"]],
        text=cells["gain"].map(info.change),
        strong=size > STRONG * extent,
        was=cells["before"].map(info.text),
        now=cells["after"].map(info.text),
        level=cells["severity"].map(severity_label),
    )
    is_heading = f"indexof({headings!r}, datum.value) >= 0"
    y = alt.Y(
        "row:N",
        title=None,
        scale=alt.Scale(domain=domain, padding=0),
        axis=plain_axis(
            labelLimit=140, labelFontWeight=alt.when(is_heading).then(alt.value(600)).otherwise(alt.value(400))
        ),
    )
    tick_label = f"format(datum.value * {100 if info.percent else 1}, '+~g')"
    x = alt.X(
        "severity:O",
        title="severity",
        axis=plain_axis(orient="top", labelAngle=0, titlePadding=4),
        scale=alt.Scale(padding=0),
    )
    colour = alt.Color(
        "gain:Q",
        title=f"gain in {info.change_unit}",
        scale=alt.Scale(domain=[-extent, extent], domainMid=0, range="diverging", interpolate="lab"),
        legend=alt.Legend(orient="bottom", gradientLength=220, tickCount=5, labelExpr=tick_label),
    )
    tooltip = [
        alt.Tooltip("row:N", title="corruption"),
        alt.Tooltip("level:N", title="severity"),
        alt.Tooltip("text:N", title="better by"),
        alt.Tooltip("was:N", title=BASELINE),
        alt.Tooltip("now:N", title=label),
    ]
    text_colour = alt.when("datum.strong").then(alt.value("#ffffff"))
    columns = ["row", "severity", "gain", "text", "strong", "was", "now", "level"]
    full_width: dict[str, Any] = {"x": alt.value(0), "x2": alt.value("width")}
    layers: list[alt.Chart] = []
    for of_rows, place, text_place in (
        (cells[cells["corruption"] != CLEAN], {"x": x}, {"x": x}),
        (cells[cells["corruption"] == CLEAN], full_width, {}),
    ):
        if not of_rows.empty:
            base = alt.Chart(inline_data(of_rows[columns])).encode(y=y)
            cell, text = base.mark_rect(style="cell-outline"), base.mark_text(fontSize=10.5, baseline="middle")
            layers.append(cell.encode(**place, color=colour, tooltip=tooltip))
            layers.append(text.encode(**text_place, text="text:N", color=text_colour))
    chart: alt.LayerChart = alt.layer(*layers).properties(
        width=380,
        height=ROW_HEIGHT * len(domain),
        title=alt.Title(
            f"What {label} gains over {BASELINE}: {info.label}",
            subtitle=f"method {method}, in {info.change_unit}; blue is better, orange is worse",
        ),
        description=f"Heat map of the gain in {info.label} of {label} over {BASELINE} by corruption and severity.",
    )
    return chart
