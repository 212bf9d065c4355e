"""A figure of a page: a chart with title and caption, in variants between which a reader may choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import altair as alt

from .save import check_suffix, save
from .style import SeriesStyle

Chart: TypeAlias = alt.LayerChart | alt.FacetChart | alt.VConcatChart


@dataclass(frozen=True)
class FigureVariant:
    """One chart, and the series styles that its legend explains."""

    chart: Chart
    styles: list[SeriesStyle] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """A figure. `choices` names what a reader may choose; `variants` has a chart for each combination of choices."""

    name: str
    title: str
    caption: str
    choices: tuple[str, ...]
    variants: dict[tuple[str, ...], FigureVariant] = field(default_factory=dict)

    @property
    def menus(self) -> list[tuple[int, str, list[str]]]:
        """(index, name, options) of every choice that has more than one option."""
        options = [list(dict.fromkeys(values)) for values in zip(*self.variants, strict=True)]
        menus = zip(range(len(self.choices)), self.choices, options, strict=True)
        return [(index, name, values) for index, name, values in menus if len(values) > 1]


def variant_file_names(figure: Figure) -> list[str]:
    """The name of each variant's file without its suffix: the figure's name and the choices, such as `accuracy-5`."""
    names = ("-".join([figure.name, *filter(None, choice)]) for choice in figure.variants)
    return ["".join(letter if letter.isalnum() or letter in ".=" else "-" for letter in name) for name in names]


def save_variants(folder: str | Path, figures: Sequence[Figure], *, suffix: str = ".png") -> list[Path]:
    """Write every variant of the figures as a file of its own, as .png, .svg, .pdf, .json or .html."""
    check_suffix(Path("figure" + suffix))
    return [
        save(variant.chart, Path(folder) / (name + suffix))
        for figure in figures
        for name, variant in zip(variant_file_names(figure), figure.variants.values(), strict=True)
    ]
