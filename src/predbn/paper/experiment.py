"""An experiment: one figure or table of the paper, with the plans it needs, its figures and its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from predbn.common import NotMeasured
from predbn.report import Panel, Variant

from .claims import Claim
from .runs import Runs

Charts = Mapping[tuple[str, ...], Callable[[], Variant]]
"""Functions that draw the variants of a figure, by the values of its choices."""


@dataclass(frozen=True)
class Figure:
    """A figure that is not drawn yet. It has a variant for each combination of choices, such as metrics.

    Drawing is slow compared with everything else, and the document shows only the first variant of each figure.

    choices  what distinguishes the variants: `metric`, `severity`
    charts   raise NotMeasured if results are missing
    """

    name: str
    title: str
    caption: str
    choices: tuple[str, ...]
    charts: Charts

    def draw(self, *, only_first: bool = False) -> Panel:
        """Draw the variants that have results; with `only_first`, only the first of them."""
        panel = Panel(self.name, self.title, self.caption, self.choices)
        for choice, draw in self.charts.items():
            try:
                panel.variants[choice] = draw()
            except NotMeasured:
                continue
            if only_first:
                break
        return panel


def _no_figures(runs: Runs) -> list[Figure]:
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
    make_figures: Callable[[Runs], list[Figure]] = _no_figures
    page: str | None = None

    def figures(self, runs: Runs) -> list[Figure]:
        """Its figures, not drawn yet; empty if results are missing."""
        try:
            return self.make_figures(runs)
        except NotMeasured:
            return []

    def panels(self, runs: Runs, *, only_first: bool = False) -> list[Panel]:
        """The figures that can be drawn from these results; with `only_first`, one variant of each."""
        panels = [figure.draw(only_first=only_first) for figure in self.figures(runs)]
        return [panel for panel in panels if panel.variants]
