"""An experiment: one figure or table of the paper, with the plans it needs, its figures and its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from predbn.common import NotMeasured
from predbn.report import Figure, FigureVariant

from .claims import Claim
from .runs import Runs

Charts = Mapping[tuple[str, ...], Callable[[], FigureVariant]]
"""Functions that draw the variants of a figure, by the values of its choices."""


@dataclass(frozen=True)
class FigureSpec:
    """A figure that is not drawn yet. It has a variant for each combination of choices, such as metrics.

    Drawing is slow compared with everything else, and the document shows only the first variant of each figure.

    choices  what distinguishes the variants: `metric`, `severity`
    charts   raise NotMeasured if results are missing
    is_own   whether it belongs to claims of our own, and not to those of the paper
    """

    name: str
    title: str
    caption: str
    choices: tuple[str, ...]
    charts: Charts
    is_own: bool = False

    def draw(self, *, only_first: bool = False) -> Figure:
        """Draw the variants that have results; with `only_first`, only the first of them."""
        figure = Figure(self.name, self.title, self.caption, self.choices)
        for choice, draw in self.charts.items():
            try:
                figure.variants[choice] = draw()
            except NotMeasured:
                continue
            if only_first:
                break
        return figure


def _no_figures(runs: Runs) -> list[FigureSpec]:
    return []


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    figure        where it is in the paper: `figures 4a and A1`
    plans         the names of the plans whose results it needs
    make_figures  gives its figures, or raises NotMeasured
    page          the document that describes it, if that is not docs/replication.md
    """

    id: str
    figure: str
    title: str
    plans: tuple[str, ...]
    claims: tuple[Claim, ...]
    make_figures: Callable[[Runs], list[FigureSpec]] = _no_figures
    page: str | None = None

    def figure_specs(self, runs: Runs) -> list[FigureSpec]:
        """Its figures, not drawn yet; empty if results are missing."""
        try:
            return self.make_figures(runs)
        except NotMeasured:
            return []

    def figures(self, runs: Runs, *, only_first: bool = False) -> list[Figure]:
        """The figures that can be drawn from these results; with `only_first`, one variant of each."""
        figures = [spec.draw(only_first=only_first) for spec in self.figure_specs(runs)]
        return [figure for figure in figures if figure.variants]
