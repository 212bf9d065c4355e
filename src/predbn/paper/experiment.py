"""An experiment: one figure or table of the paper, with what it needs, how it is drawn and what it claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from predbn.common import NotMeasured
from predbn.report import Panel

from .claims import Claim
from .runs import Runs

__all__ = ["Experiment"]


def _no_panels(runs: Runs) -> list[Panel]:
    return []


@dataclass(frozen=True)
class Experiment:
    """One module of `predbn.paper.experiments` each.

    figure   where it is in the paper: `figures 4a and A1`
    plans    the names of the plans whose results it needs
    claims   what the paper says of it
    draw     its figures, from results; NotMeasured where they are not there
    page     the document of its own that it has, if it is not in the one on the paper
    """

    id: str
    figure: str
    title: str
    plans: tuple[str, ...]
    claims: tuple[Claim, ...]
    draw: Callable[[Runs], list[Panel]] = field(default=_no_panels)
    page: str | None = None

    def panels(self, runs: Runs) -> list[Panel]:
        """The figures that can be drawn from these results; none where they are not there."""
        try:
            return self.draw(runs)
        except NotMeasured:
            return []
