"""Ask results about every claim of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .claims import Finding, Verdict, examine
from .experiment import Experiment
from .registry import choose
from .runs import RESULTS, Runs

__all__ = ["QUICK", "as_data", "summary", "verify"]

QUICK = (
    "These are quick results, on a part of the data: they show that everything works, and say little about the paper."
)


def verify(results: Runs | str | Path = RESULTS, ids: Sequence[str] = ()) -> dict[Experiment, list[Finding]]:
    """What came of each claim of the experiments with these ids, all of them unless given."""
    runs = results if isinstance(results, Runs) else Runs(results)
    return {experiment: [examine(claim, runs) for claim in experiment.claims] for experiment in choose(ids)}


def summary(found: dict[Experiment, list[Finding]]) -> str:
    """How many claims hold, in a sentence."""
    counts = Counter(finding.verdict for findings in found.values() for finding in findings)
    said = ", ".join(f"{counts[verdict]} {_phrase(verdict, counts[verdict])}" for verdict in Verdict if counts[verdict])
    return f"Of {sum(counts.values())} claims, {said}."


def _phrase(verdict: Verdict, count: int) -> str:
    one = {
        Verdict.HOLDS: ("holds", "hold"),
        Verdict.FAILS: ("does not hold", "do not hold"),
        Verdict.UNCLEAR: ("is not clear", "are not clear"),
        Verdict.UNMEASURED: ("is not measured", "are not measured"),
    }
    return one[verdict][count != 1]


def as_data(found: dict[Experiment, list[Finding]]) -> list[dict[str, Any]]:
    """The findings as plain data, for programs."""
    return [
        {
            "id": finding.claim.id,
            "figure": finding.claim.figure,
            "statement": finding.claim.statement,
            "verdict": finding.verdict.value,
            "why": finding.why,
            "measurements": [
                {
                    "what": each.what,
                    "estimate": each.interval.estimate * each.scale,
                    "low": each.interval.low * each.scale,
                    "high": each.interval.high * each.scale,
                    "level": each.interval.level,
                    "expected": each.expected,
                    "over": f"{each.count} {each.over}",
                    "verdict": each.verdict.value,
                }
                for each in finding.measurements
            ],
        }
        for findings in found.values()
        for finding in findings
    ]
