"""docs/replication.md, written from results: every claim, every figure, our values.

What a person has to say about a claim stands in `discussion.md` beside the results, a heading such as ``## C1.3`` for
each, and is put below that claim.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from predbn.report import Panel, file_names, save
from predbn.report import write_file as store

from .claims import Finding, Verdict
from .experiment import Experiment
from .headline import headline_table
from .plans import PLANS
from .registry import EXPERIMENTS
from .runs import Runs
from .verify import QUICK, summary, verify

__all__ = ["DISCUSSION", "document", "write_document"]

DISCUSSION = "discussion.md"


def document(runs: Runs, *, figures: str | None = None) -> str:
    """The document as Markdown; `figures` is the folder of the drawn figures as the document is to link to it."""
    return _text(runs, figures, {} if figures is None else _drawn(runs))


def write_document(path: str | Path, runs: Runs, *, figures: str | Path | None = None) -> Path:
    """Write the document whole, and first of every figure the variant that it shows, into the folder `figures`.

    Links to figures are relative to the document.
    """
    path = Path(path)
    if figures is None:
        return store(path, document(runs).encode())
    drawn = _drawn(runs)
    text = _text(runs, Path(os.path.relpath(figures, path.parent)).as_posix(), drawn)
    for experiment, panels in drawn.items():
        for panel in panels:
            save(next(iter(panel.variants.values())).chart, Path(figures) / _shown(experiment, panel))
    return store(path, text.encode())


def _drawn(runs: Runs) -> dict[Experiment, list[Panel]]:
    return {experiment: experiment.panels(runs) for experiment in _shown_experiments()}


def _text(runs: Runs, figures: str | None, drawn: dict[Experiment, list[Panel]]) -> str:
    runs.check()
    found = verify(runs, [experiment.id for experiment in _shown_experiments()])
    notes = {id: text for folder in runs.folders for id, text in _discussion(folder / DISCUSSION).items()}
    parts = [_head(runs, found), _overview(found)]
    for experiment, findings in found.items():
        shown = [
            f"![{panel.title}]({figures}/{_shown(experiment, panel)})\n\n*{panel.title}.* {panel.caption}"
            for panel in drawn.get(experiment, [])
        ]
        parts.append(_section(runs, experiment, findings, notes, shown))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _shown_experiments() -> list[Experiment]:
    """Those of the paper; what has a page of its own is left to it."""
    return [experiment for experiment in EXPERIMENTS.values() if experiment.page is None]


def _head(runs: Runs, found: dict[Experiment, list[Finding]]) -> str:
    size = " --quick" if runs.is_quick else ""
    lines = [
        "# The paper, measured again",
        f"{summary(found)} This page is written by `predbn paper document` from the results in "
        f"{_places(runs)}, which `predbn paper run all{size} --results {runs.folder.as_posix()}` makes; "
        f"`predbn paper verify --results {runs.folder.as_posix()}` prints the same verdicts, and those of "
        "[auto](auto.md). The paper is Nado et al. "
        "2020, [Evaluating Prediction-Time Batch Normalization for Robustness under Covariate "
        "Shift](https://arxiv.org/abs/2006.10963). Figures are shown in one metric or choice; `predbn paper figures` "
        "draws them in all.",
        "A claim is read as measurements, each a mean with a 95 % bootstrap interval and a bound that it lies above or "
        "below if the claim is true. It *holds* where the whole interval is on the right side of the bound, *does not "
        "hold* where it is on the wrong side, and is *not clear* where the interval crosses it. Intervals are over "
        "corruptions unless said; gains are signed so that positive is better, whichever way a metric points.",
    ]
    if runs.is_quick:
        lines.insert(1, f"**{QUICK}**")
    if "methods" in runs.measured:
        table = headline_table(runs)
        lines.append(f"Means over the networks, the better of train and prediction-time BN bold:\n\n{table}")
    return "\n\n".join(lines)


def _places(runs: Runs) -> str:
    """The folders that hold results: one a data set, where they are beside each other."""
    there = dict.fromkeys(runs.place(name).parent.as_posix() for name in runs.measured)
    return " and ".join(f"`{place}`" for place in there)


def _overview(found: dict[Experiment, list[Finding]]) -> str:
    lines = ["## Verdicts", "| claim | in the paper | what it says | verdict |", "|---|---|---|---|"]
    for findings in found.values():
        for finding in findings:
            claim = finding.claim
            lines.append(f"| {claim.id} | {claim.figure} | {claim.statement} | {_verdict(finding)} |")
    return f"{lines[0]}\n\n" + "\n".join(lines[1:])


def _section(
    runs: Runs, experiment: Experiment, findings: list[Finding], notes: dict[str, str], figures: list[str]
) -> str:
    lines = [f"## {experiment.id}: {experiment.title}", f"{experiment.figure[0].upper()}{experiment.figure[1:]}."]
    if experiment.plans:
        listed = "; ".join(f"`{name}`, {PLANS[name].what}{_size(runs, name)}" for name in experiment.plans)
        lines.append(f"From {listed}.")
    lines += figures
    for finding in findings:
        lines.append(_finding(finding))
        if finding.claim.id in notes:
            lines.append(notes[finding.claim.id])
    return "\n\n".join(lines)


def _shown(experiment: Experiment, panel: Panel) -> str:
    """The file of the variant that the document shows."""
    return f"{experiment.id}-{file_names(panel)[0]}.svg"


def _size(runs: Runs, plan: str) -> str:
    """On how much a plan was carried out, from its card."""
    data = runs.cards.get(plan, {}).get("data", {})
    return next((f" ({data[what]:,} {what})" for what in ("images", "rows") if what in data), "")


def _finding(finding: Finding) -> str:
    claim = finding.claim
    text = f"**{claim.id}** {claim.statement} {claim.reading}".strip() + f" → **{finding.verdict.value}**"
    text += f": {finding.why}." if finding.why else "."
    if not finding.measurements:
        return text
    rows = [
        f"| {each.what} | {each.value} | {each.bounds} | {each.count} {each.over} | {each.expected} | "
        f"{each.verdict.value} |"
        for each in finding.measurements
    ]
    return "\n".join(
        [text, "", "| measured | mean | 95 % interval | over | paper | |", "|---|--:|--:|---|---|---|", *rows]
    )


def _verdict(finding: Finding) -> str:
    text = f"{finding.verdict.value}: {finding.why}" if finding.why else finding.verdict.value
    return text if finding.verdict in (Verdict.HOLDS, Verdict.UNMEASURED) else f"**{text}**"


def _discussion(path: Path) -> dict[str, str]:
    """The texts of a discussion by claim."""
    if not path.is_file():
        return {}
    pieces = re.split(r"^## +(\S+)[^\n]*\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {id: text.strip() for id, text in zip(pieces[1::2], pieces[2::2], strict=True)}
