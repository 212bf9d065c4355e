"""Claims as checks on results: those of the paper, and those of our own.

A claim is tested by measurements: each is a mean with its 95 % interval, and a bound that the mean should be above or
below. If the whole interval is on the right side of the bound, the measurement holds; if it is on the wrong side, it
does not hold; otherwise, or with fewer than three values, it is not clear. A claim holds if all of its measurements do.

The 19 corruptions are fixed and not a sample. So the interval that decides is over networks, where at least three were
measured, and that over corruptions is reported beside it. Single networks have intervals over corruptions or images.

The paper rarely gives numbers, so the bounds are ours, and the test of a claim says why they are where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from predbn.common import NotMeasured
from predbn.metrics import Interval

from .runs import Runs

Side = Literal["above", "below"]

MIN_VALUES = 3
"""With fewer values an interval is not trusted: one or two values say nothing about their spread."""


class Verdict(str, Enum):
    """The outcome of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "not clear"
    UNMEASURED = "not measured"


@dataclass(frozen=True)
class Measurement:
    """A mean with its interval, and the side of `bound` on which it should be.

    what    what was measured, with its unit: `accuracy, points: ...`
    count   the number of values behind the interval
    over    what these values are, and therefore what the interval generalises over: `corruptions`
    scale   factor for display: 100 for percentages
    signed  whether the values are differences, which are shown with their sign
    other   the same mean with its interval over something else, which is reported and has no part in the verdict
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
    other: Measurement | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether the interval is on the expected side of the bound."""
        if self.count < MIN_VALUES:
            return Verdict.UNCLEAR
        if self.interval.low > self.bound:
            return Verdict.HOLDS if self.side == "above" else Verdict.FAILS
        if self.interval.high < self.bound:
            return Verdict.HOLDS if self.side == "below" else Verdict.FAILS
        return Verdict.UNCLEAR

    @property
    def value(self) -> str:
        return self.format(self.interval.estimate)

    @property
    def bounds(self) -> str:
        """The interval as text."""
        if not math.isfinite(self.interval.high - self.interval.low):
            return "no interval"
        return f"{self.format(self.interval.low)} to {self.format(self.interval.high)}"

    @property
    def intervals(self) -> str:
        """Every interval with what it is over, as text."""
        text = f"{self.bounds} over {self.number}"
        return text if self.other is None else f"{text}; {self.other.bounds} over {self.other.number}"

    @property
    def number(self) -> str:
        """How many values there are, and of what: `19 corruptions`."""
        return f"{self.count:,} {self.over.removesuffix('s') if self.count == 1 else self.over}"

    @property
    def required(self) -> str:
        """On which side of which bound the mean has to be, as text."""
        return f"{self.side} {self.bound * self.scale:.4g}".replace("-", "\N{MINUS SIGN}")

    def format(self, value: float) -> str:
        """A value in the unit that `what` names."""
        text = f"{value * self.scale:{'+' if self.signed else ''}.{self.digits}f}"
        return text.lstrip("+-") if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


Measure = Callable[[Runs], Sequence[Measurement]]
"""Takes the measurements of a claim from results, or raises NotMeasured."""


@dataclass(frozen=True)
class Claim:
    """One statement, in our words, and what is measured to test it.

    figure  where the paper makes it: `figure 3a`; None if it is a claim of our own
    test    how it is tested if the paper leaves that open: what is compared, and why with these bounds
    """

    id: str
    figure: str | None
    statement: str
    test: str
    measure: Measure

    @property
    def is_of_paper(self) -> bool:
        """Whether the paper makes it, and not we."""
        return self.figure is not None


@dataclass(frozen=True)
class Finding:
    """A claim with its verdict, the measurements behind it, and the reason if it could not be measured."""

    claim: Claim
    verdict: Verdict
    measurements: tuple[Measurement, ...] = ()
    why: str = ""


def check_claim(claim: Claim, runs: Runs) -> Finding:
    """Check a claim on results. The worst verdict of its measurements is that of the claim."""
    try:
        measurements = tuple(claim.measure(runs))
    except NotMeasured as error:
        return Finding(claim, Verdict.UNMEASURED, why=str(error))
    verdicts = [measurement.verdict for measurement in measurements]
    worst = next((bad for bad in (Verdict.FAILS, Verdict.UNCLEAR) if bad in verdicts), Verdict.HOLDS)
    return Finding(claim, worst, measurements)
