"""Reliability diagrams: how accuracy, or the number of predictions, depends on confidence."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from predbn.common import ReportError

from ..frames import add_series, check_reliability
from ..style import SeriesStyle, series_styles
from .encoding import by_series, diagonal, facets, inline_data, names_of, plain_axis, series_legend


def reliability(frame: pd.DataFrame) -> alt.FacetChart:
    """Accuracy over mean confidence within bins of confidence, one panel per severity.

    On the diagonal a model is calibrated; below it is over-confident. A dot's area is the share of predictions in its
    bin.
    """
    rows = check_reliability(frame)
    bins = pool_bins(rows)
    if bins.empty:
        raise ReportError("All bins of the reliability frame are empty: evaluate at least one image.")
    styles = series_styles(rows)
    legend = series_legend("stroke", symbolStrokeWidth=2)
    percent = plain_axis(format="%", values=[0, 0.5, 1])
    unit = alt.Scale(domain=[0, 1])
    base = alt.Chart().encode(
        x=alt.X("confidence:Q", title="confidence", scale=unit, axis=percent),
        y=alt.Y("accuracy:Q", title="accuracy", scale=unit, axis=percent),
        **by_series(styles, legend, color="colour"),
    )
    lines = base.mark_line(strokeWidth=1.5).encode(order="bin:O", **by_series(styles, legend, strokeDash="dash"))
    dots = base.mark_circle(opacity=0.85).encode(
        size=alt.Size("share:Q", scale=alt.Scale(domain=[0, 1], range=[6, 220]), legend=None),
        tooltip=[
            alt.Tooltip("series:N", title="series"),
            alt.Tooltip("confidence:Q", format=".1%", title="mean confidence"),
            alt.Tooltip("accuracy:Q", format=".1%", title="accuracy"),
            alt.Tooltip("count:Q", format=",", title="predictions"),
        ],
    )
    return facets(
        alt.layer(diagonal(), lines, dots).properties(width=180, height=180),
        "severity:O",
        bins,
        label="datum.value == 0 ? 'clean' : 'severity ' + datum.value",
        title="Reliability: below the diagonal is over-confident",
        description="Reliability diagrams: accuracy over confidence, a panel for each severity.",
    )


def pool_bins(frame: pd.DataFrame) -> pd.DataFrame:
    """The bins of all corruptions, models and seeds together, by series and severity.

    Counts add up, and means are weighted with them: accuracy = Σ nᵢ·accuracyᵢ / Σ nᵢ, as if all predictions had been
    binned together. `share` is a bin's share of the predictions in its panel. Empty bins are left out.
    """
    rows = add_series(frame[frame["count"] > 0])
    rows = rows.assign(
        confident=rows["confidence"] * rows["count"],
        correct=rows["accuracy"] * rows["count"],
    )
    keys = ["series", "severity", "bin"]
    sums: pd.DataFrame = rows.groupby(keys, as_index=False, sort=False)[["count", "confident", "correct"]].sum()
    total = sums.groupby(["series", "severity"])["count"].transform("sum")
    means = {
        "confidence": sums["confident"] / sums["count"],
        "accuracy": sums["correct"] / sums["count"],
        "share": sums["count"] / total,
    }
    bins: pd.DataFrame = sums[[*keys, "count"]].assign(**means).sort_values(keys)
    return bins


def confidence_bins(bins: pd.DataFrame, styles: Sequence[SeriesStyle]) -> alt.VConcatChart:
    """The share of predictions by confidence, above the accuracy by confidence.

    `bins` has one row per series and bin: series, lower, upper, count, right. The upper scale is a square root, since
    bins near certainty hold many times as many predictions as the others.
    """
    total = bins.groupby("series")["count"].transform("sum")
    rows = bins.assign(
        share=bins["count"] / total,
        accuracy=bins["right"] / bins["count"],
        middle=(bins["lower"] + bins["upper"]) / 2,
    )
    percent = plain_axis(format="%", tickCount=5)
    unit = alt.Scale(domain=[0, 1], nice=False)
    legend = series_legend("stroke")
    base = (
        alt.Chart(inline_data(rows))
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("middle:Q", title="confidence", scale=unit, axis=percent),
            **by_series(styles, legend, color="colour", strokeDash="dash"),
            tooltip=[
                alt.Tooltip("series:N", title="series"),
                alt.Tooltip("lower:Q", title="from", format=".0%"),
                alt.Tooltip("upper:Q", title="to", format=".0%"),
                alt.Tooltip("count:Q", title="predictions", format=","),
                alt.Tooltip("accuracy:Q", title="accuracy", format=".1%"),
            ],
        )
    )
    root = alt.Scale(type="sqrt", domainMin=0)
    shares = base.mark_line(strokeWidth=1.5, interpolate="step").encode(
        y=alt.Y("share:Q", title="share of predictions", scale=root, axis=percent)
    )
    accuracies = base.encode(y=alt.Y("accuracy:Q", title="accuracy", scale=unit, axis=percent))
    chart: alt.VConcatChart = alt.vconcat(
        shares.properties(width=560, height=150),
        alt.layer(diagonal(), accuracies).properties(width=560, height=300),
    ).properties(
        title="Confidence, and accuracy by confidence",
        description=f"Share of predictions and accuracy by confidence: {names_of(styles)}",
    )
    return chart
