"""What the figures share: data with few digits, and the scales that give a series its look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from ..looks import Look

__all__ = ["SEVERITY_LABEL", "inline", "series_legend", "series_scale"]

DIGITS = 5
SEVERITY_LABEL = "datum.value == 0 ? 'clean' : datum.value"


def _short(value: Any) -> Any:
    """Five significant digits are more than a chart shows; what is not finite cannot be drawn, nor be JSON."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def inline(frame: pd.DataFrame) -> alt.InlineData:
    """The frame as part of the specification, without Altair's limit on rows: what is drawn here is bounded."""
    rows = [{str(key): _short(value) for key, value in row.items()} for row in frame.to_dict("records")]
    return alt.InlineData(values=rows)


def series_scale(looks: Sequence[Look], attribute: str) -> alt.Scale:
    """The scale from a series to one attribute of its look."""
    domain, values = [look.series for look in looks], [getattr(look, attribute) for look in looks]
    return alt.Scale(type="ordinal", domain=domain, range=values)


def series_legend(symbol: str = "circle") -> alt.Legend:
    """The legend of a chart that stands by itself; a page has its own."""
    return alt.Legend(orient="top", columns=2, symbolType=symbol)
