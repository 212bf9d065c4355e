"""An experiment: one figure or table of the paper, with the plans it needs, its claims and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from predbn.common import NotMeasured, parse_toml
from predbn.report import Figure, FigureVariant

from .claims import Claim, Measure
from .measurements import unmeasured
from .runs import Runs

Draw = Callable[[Runs], FigureVariant]
"""Draws one variant of a figure, or raises NotMeasured if results are missing."""
Charts = dict[tuple[str, ...], Draw]
"""The variants of a figure by the values of its choices."""


@dataclass(frozen=True)
class FigureSpec:
    """A figure that is not drawn yet. It has a variant for each combination of choices, such as metrics.

    choices  what distinguishes the variants: `metric`, `severity`
    charts   the variants, or a function that gives them, if they depend on the results
    """

    name: str
    title: str
    caption: str
    choices: tuple[str, ...]
    charts: Charts | Callable[[Runs], Charts]

    def variants(self, runs: Runs, *, only_first: bool = False) -> dict[tuple[str, ...], Draw]:
        """How each variant is drawn; with `only_first`, only the first variant, or the first of each network."""
        try:
            charts = self.charts(runs) if callable(self.charts) else self.charts
        except NotMeasured:
            return {}
        if not only_first:
            return dict(charts)
        first = {choice[0] if self.choices[:1] == ("network",) else "": choice for choice in reversed(charts)}
        return {choice: charts[choice] for choice in reversed(first.values())}

    def draw(self, runs: Runs, *, only_first: bool = False) -> Figure:
        """Draw the variants that have results; `only_first` as in `variants`, because drawing is slow."""
        figure = Figure(self.name, self.title, self.caption, self.choices)
        for choice, draw in self.variants(runs, only_first=only_first).items():
            try:
                figure.variants[choice] = draw(runs)
            except NotMeasured:
                continue
        return figure


@dataclass(frozen=True, eq=False)
class Experiment:
    """One figure or table of the paper.

    figure  where it is in the paper: `figures 3a and A1`
    plans   the names of the plans whose results it needs
    """

    id: str
    figure: str
    title: str
    plans: tuple[str, ...]
    claims: tuple[Claim, ...]
    figure_specs: tuple[FigureSpec, ...]

    def figures(self, runs: Runs, *, only_first: bool = False) -> list[Figure]:
        """The figures that can be drawn from these results; with `only_first`, one variant of each."""
        figures = [spec.draw(runs, only_first=only_first) for spec in self.figure_specs]
        return [figure for figure in figures if figure.variants]


def experiment(
    id: str,
    plans: Sequence[str] = (),
    measures: Mapping[int, Measure] | None = None,
    figures: Sequence[FigureSpec] = (),
) -> Experiment:
    """An experiment whose title and claims are those of claims.toml; `measures` has how each claim is measured."""
    entry = _texts()[id]
    texts = {int(number): text for number, text in entry.items() if number.isdigit()}
    by_number = dict(measures or {})
    for number, text in texts.items():
        if "unmeasured" in text:
            by_number[number] = unmeasured(text["unmeasured"])
    if set(by_number) != set(texts):
        raise ValueError(f"claims.toml has the claims {sorted(texts)} of {id}, and {sorted(by_number)} are measured")
    claims = (
        Claim(f"{id}.{number}", text.get("figure"), text["statement"], text.get("test", ""), by_number[number])
        for number, text in texts.items()
    )
    return Experiment(id, entry["figure"], entry["title"], tuple(plans), tuple(claims), tuple(figures))


@cache
def _texts() -> dict[str, Any]:
    return parse_toml((files("predbn.paper") / "claims.toml").read_text(encoding="utf-8"))
