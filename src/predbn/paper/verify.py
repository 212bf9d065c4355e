"""Check the claims of the experiments on results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .claims import Finding, Measurement, Verdict, check_claim
from .experiment import Experiment
from .experiments import choose
from .runs import Runs

QUICK_WARNING = (
    "These are quick results, on a part of the data: they show that everything works, and say little about the paper."
)

_PHRASES = {
    Verdict.HOLDS: ("holds", "hold"),
    Verdict.FAILS: ("does not hold", "do not hold"),
    Verdict.UNCLEAR: ("is not clear", "are not clear"),
    Verdict.UNMEASURED: ("is not measured", "are not measured"),
}
"""Singular and plural."""

Findings = dict[Experiment, list[Finding]]


def verify(runs: Runs, ids: Sequence[str] = ()) -> Findings:
    """Check every claim of the experiments with these ids, by default of all experiments."""
    return {experiment: [check_claim(claim, runs) for claim in experiment.claims] for experiment in choose(ids)}


def verdict_summary(findings: Findings) -> str:
    """How many claims hold, do not hold, are not clear and are not measured: of the paper, and of our own."""
    every = [finding for group in findings.values() for finding in group]
    sources = {
        "the paper's": [finding for finding in every if finding.claim.is_of_paper],
        "our own": [finding for finding in every if not finding.claim.is_of_paper],
    }
    counted = " ".join(_count_of(whose, group) for whose, group in sources.items() if group)
    return counted or "There are no claims to check."


def _count_of(whose: str, findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    parts = [f"{counts[verdict]} {_PHRASES[verdict][counts[verdict] != 1]}" for verdict in Verdict if counts[verdict]]
    return f"Of {whose} {len(findings)} claims, {', '.join(parts)}."


def findings_as_data(findings: Findings) -> list[dict[str, Any]]:
    """The findings as plain data that can be written as JSON."""
    return [
        {
            "id": finding.claim.id,
            "source": "paper" if finding.claim.is_of_paper else "own",
            "figure": finding.claim.figure,
            "statement": finding.claim.statement,
            "verdict": finding.verdict.value,
            "why": finding.why,
            "measurements": [
                _as_data(measurement) | {"other": measurement.other and _as_data(measurement.other)}
                for measurement in finding.measurements
            ],
        }
        for group in findings.values()
        for finding in group
    ]


def _as_data(measurement: Measurement) -> dict[str, Any]:
    return {
        "what": measurement.what,
        "estimate": measurement.interval.estimate * measurement.scale,
        "low": measurement.interval.low * measurement.scale,
        "high": measurement.interval.high * measurement.scale,
        "level": measurement.interval.level,
        "required": measurement.required,
        "over": measurement.number,
        "verdict": measurement.verdict.value,
    }
