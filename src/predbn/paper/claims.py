"""What the paper says, as something that can be asked of results.

A claim comes down to measurements: a mean with its 95 % bootstrap interval, and a bound on one side of which it lies
if the claim is true. An interval wholly on that side holds, one wholly on the other does not, and one across
the bound is not clear; nor is one of fewer than three values. A claim holds if all of its measurements do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from predbn.common import NotMeasured
from predbn.metrics import Interval

from .runs import Runs

__all__ = ["Claim", "Finding", "Measurement", "Side", "Verdict", "examine"]

Side = Literal["above", "below"]

LEAST = 3
"""Values that an interval needs to be believed: resampling one or two says nothing."""


class Verdict(str, Enum):
    """What came of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "not clear"
    UNMEASURED = "not measured"


@dataclass(frozen=True)
class Measurement:
    """A mean with its interval, and on which side of `bound` the paper has it.

    what   what was measured, with its unit: `accuracy gained, points`
    count  how many values the interval rests on
    over   what they are, and what the interval therefore generalises over: `corruptions`
    scale  what values are multiplied with to be shown, 100 for percentages
    signed whether values are differences, and shown with their sign
    """

    what: str
    interval: Interval
    side: Side
    bound: float
    count: int
    over: str
    scale: float = 1.0
    digits: int = 3
    signed: bool = True

    @property
    def verdict(self) -> Verdict:
        """Whether the interval lies on the paper's side of the bound."""
        if self.count < LEAST:
            return Verdict.UNCLEAR
        if self.interval.low > self.bound:
            return Verdict.HOLDS if self.side == "above" else Verdict.FAILS
        if self.interval.high < self.bound:
            return Verdict.HOLDS if self.side == "below" else Verdict.FAILS
        return Verdict.UNCLEAR

    @property
    def value(self) -> str:
        """The mean as text."""
        return self.number(self.interval.estimate)

    @property
    def bounds(self) -> str:
        """The interval as text."""
        if not math.isfinite(self.interval.high - self.interval.low):
            return "no interval"
        return f"{self.number(self.interval.low)} to {self.number(self.interval.high)}"

    @property
    def expected(self) -> str:
        """What the claim expects."""
        return f"{self.side} {self.bound * self.scale:.4g}".replace("-", "\N{MINUS SIGN}")

    def number(self, value: float) -> str:
        """A value in the unit that `what` names."""
        text = f"{value * self.scale:{'+' if self.signed else ''}.{self.digits}f}"
        return text.replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Claim:
    """One statement of the paper.

    statement  the statement, in our words
    reading    how we read it where the paper leaves it open: what is compared, and why the bounds are what they are
    measure    gives the measurements from results, or raises NotMeasured
    """

    id: str
    figure: str
    statement: str
    reading: str
    measure: Callable[[Runs], Sequence[Measurement]]


@dataclass(frozen=True)
class Finding:
    """What came of asking results about a claim."""

    claim: Claim
    verdict: Verdict
    measurements: tuple[Measurement, ...] = field(default=())
    why: str = ""


def examine(claim: Claim, runs: Runs) -> Finding:
    """Ask results about a claim."""
    try:
        found = tuple(claim.measure(runs))
    except NotMeasured as error:
        return Finding(claim, Verdict.UNMEASURED, why=str(error))
    verdicts = {each.verdict for each in found}
    for verdict in (Verdict.FAILS, Verdict.UNCLEAR):
        if verdict in verdicts:
            return Finding(claim, verdict, found)
    return Finding(claim, Verdict.HOLDS, found)
