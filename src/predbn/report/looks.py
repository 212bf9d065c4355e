"""What a series looks like, the same in every figure and in both themes.

Colours are those of Okabe and Ito, which people with any of the common colour blindnesses can tell apart (the blue
a little lighter, for dark pages). The baseline is hollow or dashed, what is compared with it is filled or solid, so
that no figure relies on colour alone. Where each method has one strategy besides the baseline, a hue stands for a
method; else for a series.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import pandas as pd

from .frames import BASELINE, series_of

__all__ = ["Look", "looks"]

GREY = "#7d828a"
HUES = ("#1b7fc4", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


@dataclass(frozen=True)
class Look:
    """How one series is drawn."""

    series: str
    colour: str
    baseline: bool

    @property
    def area(self) -> str:
        """The colour of an area, as #rrggbbaa: nearly clear for the baseline, strong for the others."""
        return self.colour + ("12" if self.baseline else "99")

    @property
    def dash(self) -> list[int]:
        """The dashes of a line."""
        return [4, 3] if self.baseline else [1, 0]


def _hues(count: int) -> list[str]:
    """The first colours of the palette; evenly spaced hues where it has too few."""
    if count <= len(HUES):
        return list(HUES[:count])
    wheel = (colorsys.hls_to_rgb(index / count, 0.5, 0.6) for index in range(count))
    return ["#" + "".join(f"{round(255 * channel):02x}" for channel in rgb) for rgb in wheel]


def looks(frame: pd.DataFrame) -> list[Look]:
    """The look of every series of a frame, in the order in which they are drawn."""
    series = series_of(frame)
    others = series[series["strategy"] != BASELINE]
    by_method = series["method"].nunique() > 1 and not others.duplicated("method").any()
    if by_method:
        distinct = list(dict.fromkeys(series["method"]))
        named = dict(zip(distinct, _hues(len(distinct)), strict=True))
        colours = [named[method] for method in series["method"]]
    else:
        one_baseline = len(series) - len(others) == 1
        coloured = others if one_baseline else series
        palette = dict(zip(coloured["series"], _hues(len(coloured)), strict=True))
        colours = [palette.get(name, GREY) for name in series["series"]]
    return [
        Look(name, colour, strategy == BASELINE)
        for name, colour, strategy in zip(series["series"], colours, series["strategy"], strict=True)
    ]
