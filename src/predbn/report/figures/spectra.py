"""Covariance spectra of embeddings and logits."""

from __future__ import annotations

import altair as alt
import pandas as pd

from predbn.common import ReportError
from predbn.diagnostics import Diagnosis, spectrum

from ..sides import sides
from .parts import inline, series_legend, series_scale

__all__ = ["spectra"]


def spectra(diagnosis: Diagnosis, *, top: int = 12) -> alt.FacetChart:
    """The largest eigenvalues of the covariances of embeddings and logits, on a logarithmic scale."""
    rows = [
        {"place": place, "series": look.series, "rank": rank, "variance": value}
        for place in ("embeddings", "logits")
        for look, profile in sides(diagnosis)
        if place in profile.distributions
        for rank, value in enumerate(spectrum(profile.distributions[place].gaussian, top=top).tolist(), start=1)
        if value > 0
    ]
    if not rows:
        raise ReportError("The model gave no logits, so that there are no spectra to draw.")
    looks = [look for look, _ in sides(diagnosis)]
    legend = series_legend("circle")
    base = alt.Chart().encode(
        x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0, grid=False, ticks=False)),
        y=alt.Y(
            "variance:Q", title=None, scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=5, format="~g", grid=False)
        ),
        stroke=alt.Stroke("series:N", title=None, legend=legend, scale=series_scale(looks, "colour")),
    )
    lines = base.mark_line(strokeWidth=1.5).encode(
        strokeDash=alt.StrokeDash("series:N", title=None, legend=legend, scale=series_scale(looks, "dash"))
    )
    dots = base.mark_point(size=30, strokeWidth=1.5, opacity=1).encode(
        fill=alt.Fill("series:N", title=None, legend=legend, scale=series_scale(looks, "area")),
        tooltip=[
            alt.Tooltip("series:N", title="data · strategy"),
            alt.Tooltip("rank:O", title="rank"),
            alt.Tooltip("variance:Q", title="variance", format=".3g"),
        ],
    )
    frame: pd.DataFrame = pd.DataFrame(rows)
    panel = alt.layer(lines, dots).properties(width=280, height=200)
    facet = alt.Facet("place:N", title=None, header=alt.Header(labelFontWeight=600))
    chart: alt.FacetChart = (
        panel.facet(facet=facet, columns=2, data=inline(frame))
        .resolve_scale(y="independent", x="independent")
        .properties(
            title="Spectra of the covariances",
            description="Eigenvalues of the covariances of embeddings and logits by rank, one line a series.",
        )
    )
    return chart
