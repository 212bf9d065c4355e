"""The figures of a diagnosis as a whole: distance by layer, covariance spectra, confidence."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from predbn.common import ReportError
from predbn.diagnostics import Diagnosis, Profile, shift_threshold, spectrum

from ..strategy_info import strategy_label
from ..style import GREY, HUES, SeriesStyle
from .encoding import by_series, facets, inline_data, names_of, outlines, series_legend
from .layers import layer_chart

MERGED_BINS = 5

_STYLES = {
    ("reference", True): (GREY, True),
    ("shifted", True): (HUES[1], False),
    ("shifted", False): (HUES[0], False),
    ("reference", False): (HUES[4], True),
}
"""Colour, and whether it is hollow, by data and whether the strategy is train: the shift is orange, what the strategy
makes of it is blue, and the reference is hollow."""


def profile_style(data: str, strategy: str) -> SeriesStyle:
    """The style of the "reference" or "shifted" data under a strategy."""
    colour, hollow = _STYLES[data, strategy == "train"]
    return SeriesStyle(f"{data} · {strategy_label(strategy)}", colour, hollow)


def profiles(diagnosis: Diagnosis) -> Iterator[tuple[SeriesStyle, Profile]]:
    """The reference, the shifted data, and the shifted data under the strategy, each with its style."""
    for data, strategy, profile in diagnosis.sides():
        if data != "reference" or strategy == "train":
            yield profile_style(data, strategy), profile


def profile_styles(diagnosis: Diagnosis) -> list[SeriesStyle]:
    """The styles of `profiles`."""
    return [style for style, _ in profiles(diagnosis)]


def depth_styles(diagnosis: Diagnosis) -> list[SeriesStyle]:
    """The styles of what `depth` draws: everything that has a distance from the reference under train."""
    return [profile_style(data, strategy) for data, strategy, _ in list(diagnosis.sides())[1:]]


def depth(diagnosis: Diagnosis) -> alt.LayerChart:
    """One row per layer, in the order of the calls, with its distance from the reference under each strategy.

    The grey bar shows how far a layer may move without counting as shifted.
    """
    styles = depth_styles(diagnosis)
    rows = [
        {
            "layer": row.layer,
            "series": profile_style(row.data, row.strategy).series,
            "distance": row.distance,
            "outside": row.outside,
            "divergence": row.divergence,
            "threshold": shift_threshold(row),
            "spanned": row.data == "shifted",
        }
        for row in diagnosis.shifts
        if (row.data, row.strategy) != ("reference", "train")
    ]
    if not rows:
        raise ReportError("The diagnosis has no layers: the model gave neither batch norm outputs nor logits.")
    return layer_chart(
        pd.DataFrame(rows),
        styles,
        x_title="distance in standard deviations",
        tooltip=[
            alt.Tooltip("layer:N", title="layer"),
            alt.Tooltip("series:N", title="data · strategy"),
            alt.Tooltip("distance:Q", title="distance", format=".3f"),
            alt.Tooltip("outside:Q", title="outside the range", format=".1%"),
            alt.Tooltip("divergence:Q", title="divergence, nats", format=".2f"),
        ],
        title="How far each layer moved from the reference",
        description=f"Distance of each layer's outputs from the reference, by layer: {names_of(styles)}",
    )


def spectra(diagnosis: Diagnosis, *, top: int = 12) -> alt.FacetChart:
    """The largest eigenvalues of the covariances of embeddings and logits, on a logarithmic scale."""
    rows = [
        {"place": place, "series": style.series, "rank": rank, "variance": value}
        for place in ("embeddings", "logits")
        for style, profile in profiles(diagnosis)
        if place in profile.distributions
        for rank, value in enumerate(spectrum(profile.distributions[place].gaussian, top=top).tolist(), start=1)
        if value > 0
    ]
    if not rows:
        raise ReportError("The model gave no logits, so there are no spectra to draw.")
    styles, legend = profile_styles(diagnosis), series_legend("circle")
    base = alt.Chart().encode(
        x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0, grid=False, ticks=False)),
        y=alt.Y(
            "variance:Q", title=None, scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=5, format="~g", grid=False)
        ),
        **by_series(styles, legend, stroke="colour"),
    )
    lines = base.mark_line(strokeWidth=1.5).encode(**by_series(styles, legend, strokeDash="dash"))
    dots = base.mark_point(size=30, strokeWidth=1.5, opacity=1).encode(
        **by_series(styles, legend, fill="area"),
        tooltip=[
            alt.Tooltip("series:N", title="data · strategy"),
            alt.Tooltip("rank:O", title="rank"),
            alt.Tooltip("variance:Q", title="variance", format=".3g"),
        ],
    )
    return facets(
        alt.layer(lines, dots).properties(width=280, height=200),
        "place:N",
        pd.DataFrame(rows),
        columns=2,
        own_axes=True,
        title="Spectra of the covariances",
        description="Eigenvalues of the covariances of embeddings and logits by rank, one line per series.",
    )


def confidence(diagnosis: Diagnosis) -> alt.LayerChart:
    """The share of predictions by confidence, in twenty bins; the scale is a square root, since most are near 1."""
    rows = []
    for style, profile in profiles(diagnosis):
        if profile.confidence is None:
            continue
        counts = profile.confidence.counts.view(-1, MERGED_BINS).sum(1)
        shares = (counts.double() / profile.confidence.count).tolist()
        width = 1 / len(shares)
        for index, share in enumerate(shares):
            rows.append({"series": style.series, "low": index * width, "high": (index + 1) * width, "share": share})
    if not rows:
        raise ReportError("The model gave no logits, so there is no confidence to draw.")
    styles = profile_styles(diagnosis)
    frame: pd.DataFrame = pd.DataFrame(rows)
    ends = frame.groupby("series", sort=False).tail(1).assign(low=1.0)  # so that the last step has its width
    axis = alt.Axis(format="%", domain=False, ticks=False, tickCount=5)
    base = alt.Chart(inline_data(pd.concat([frame, ends]))).encode(
        x=alt.X("low:Q", title="confidence", scale=alt.Scale(domain=[0, 1], nice=False), axis=axis),
        y=alt.Y("share:Q", title=None, scale=alt.Scale(type="sqrt"), axis=axis, stack=None),
    )
    area, line = outlines(base, styles, "step-after", opacity=0.13)
    tooltip = [
        alt.Tooltip("series:N", title="data · strategy"),
        alt.Tooltip("low:Q", title="from", format=".0%"),
        alt.Tooltip("high:Q", title="to", format=".0%"),
        alt.Tooltip("share:Q", title="predictions", format=".1%"),
    ]
    chart: alt.LayerChart = alt.layer(area, line.encode(tooltip=tooltip)).properties(
        width=640,
        height=220,
        title="Confidence",
        description=f"Share of predictions by confidence: {names_of(styles)}",
    )
    return chart
