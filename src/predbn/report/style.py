"""Colours and fonts: the light and the dark theme of pages and charts, and how each series is drawn.

A theme defines both CSS and Vega. Series have the same colours in both themes and in every figure: those of Okabe and
Ito, which are distinct with any common colour blindness (the blue a little lighter, for dark pages). The baseline
is hollow or dashed, other series are filled or solid, so no figure relies on colour alone.
"""

from __future__ import annotations

import colorsys
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from .frames import BASELINE, list_series

GREY = "#7d828a"
HUES = ("#1b7fc4", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
SANS = "system-ui, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


@dataclass(frozen=True)
class Theme:
    """The colours of a page and its charts. `worse`, `neutral` and `better` are the diverging scale of the heat map."""

    paper: str
    ink: str
    muted: str
    line: str
    shade: str
    worse: str
    neutral: str
    better: str

    def css(self) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in asdict(self).items())

    def config(self) -> dict[str, Any]:
        """The Vega-Lite configuration: thin lines, small grey labels, no frame."""
        label = {"labelColor": self.muted, "labelFontSize": 11, "labelFont": SANS}
        title = {"titleColor": self.muted, "titleFontSize": 11, "titleFontWeight": "normal", "titleFont": SANS}
        return {
            "background": self.paper,
            "padding": 14,
            "font": SANS,
            "view": {"stroke": None},
            "axis": {
                **label,
                **title,
                "gridColor": self.line,
                "domainColor": self.line,
                "tickColor": self.line,
                "labelPadding": 6,
                "titlePadding": 10,
            },
            "header": {"labelColor": self.ink, "labelFontSize": 11, "labelFont": SANS, **title},
            "legend": {**label, **title, "labelColor": self.ink, "labelLimit": 320, "symbolSize": 120},
            "title": {
                "anchor": "start",
                "frame": "group",
                "color": self.ink,
                "font": SANS,
                "fontSize": 13,
                "fontWeight": 600,
                "subtitleColor": self.muted,
                "subtitleFont": SANS,
                "subtitleFontSize": 11,
                "subtitlePadding": 4,
                "offset": 12,
            },
            "text": {"color": self.ink, "font": SANS},
            "style": {
                "diagonal": {"color": self.muted, "strokeWidth": 1, "strokeDash": [2, 3]},
                "interval": {"color": self.ink, "strokeWidth": 1.5, "opacity": 1},
                "cell-outline": {"stroke": self.paper, "strokeWidth": 1.5},
            },
            "range": {"diverging": [self.worse, self.neutral, self.better]},
        }


_COLOURS = {  # light, dark
    "paper": ("#fffefb", "#15171a"),
    "ink": ("#1c1b19", "#e9e6df"),
    "muted": ("#62605a", "#a3a199"),
    "line": ("#e2dfd6", "#33363b"),
    "shade": ("#f5f3ec", "#1d2024"),
    "worse": ("#b4530a", "#b85c14"),
    "neutral": ("#f3f1ea", "#25282d"),
    "better": ("#1f66a8", "#2f74b5"),
}
LIGHT, DARK = (Theme(**dict(zip(_COLOURS, theme, strict=True))) for theme in zip(*_COLOURS.values(), strict=True))
THEMES = {"light": LIGHT, "dark": DARK}


@dataclass(frozen=True)
class SeriesStyle:
    """How one series is drawn."""

    series: str
    colour: str
    baseline: bool

    @property
    def area(self) -> str:
        """The fill colour as #rrggbbaa: nearly clear for the baseline, strong for the others."""
        return self.colour + ("12" if self.baseline else "99")

    @property
    def dash(self) -> list[int]:
        return [4, 3] if self.baseline else [1, 0]


def series_styles(frame: pd.DataFrame) -> list[SeriesStyle]:
    """The style of every series of a frame, in the order in which they are drawn.

    If each method has one strategy besides the baseline, each method has its hue; otherwise each series has, and a
    single baseline is grey.
    """
    series = list_series(frame)
    others = series[series["strategy"] != BASELINE]
    if series["method"].nunique() > 1 and not others.duplicated("method").any():
        colour_by, coloured = "method", series
    else:
        has_one_baseline = len(series) - len(others) == 1
        colour_by, coloured = "series", others if has_one_baseline else series
    names = list(dict.fromkeys(coloured[colour_by]))
    colours = dict(zip(names, _distinct_colours(len(names)), strict=True))
    return [
        SeriesStyle(row["series"], colours.get(row[colour_by], GREY), row["strategy"] == BASELINE)
        for row in series.to_dict("records")
    ]


def _distinct_colours(count: int) -> list[str]:
    """The first colours of the palette, or evenly spaced hues if it has too few."""
    if count <= len(HUES):
        return list(HUES[:count])
    wheel = (colorsys.hls_to_rgb(index / count, 0.5, 0.6) for index in range(count))
    return ["#" + "".join(f"{round(255 * channel):02x}" for channel in rgb) for rgb in wheel]
