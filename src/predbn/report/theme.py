"""The colours and type of the page and of its charts, in light and in dark: one source for CSS and for Vega."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DARK", "LIGHT", "SANS", "THEMES", "Theme"]

SANS = "system-ui, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


@dataclass(frozen=True)
class Theme:
    """A set of colours. `worse`, `neutral` and `better` make the diverging scale of the heat map."""

    paper: str
    ink: str
    muted: str
    line: str
    shade: str
    worse: str
    neutral: str
    better: str

    def css(self) -> str:
        """The colours as CSS custom properties."""
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
                "cell-outline": {"stroke": self.paper, "strokeWidth": 1.5},
            },
            "range": {"diverging": [self.worse, self.neutral, self.better]},
        }


LIGHT = Theme(
    paper="#fffefb",
    ink="#1c1b19",
    muted="#62605a",
    line="#e2dfd6",
    shade="#f5f3ec",
    worse="#b4530a",
    neutral="#f3f1ea",
    better="#1f66a8",
)
DARK = Theme(
    paper="#15171a",
    ink="#e9e6df",
    muted="#a3a199",
    line="#33363b",
    shade="#1d2024",
    worse="#b85c14",
    neutral="#25282d",
    better="#2f74b5",
)
THEMES = {"light": LIGHT, "dark": DARK}
