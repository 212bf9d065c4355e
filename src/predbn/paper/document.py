"""docs/replication.md, generated from results: every claim with its measurements, and every figure.

Comments on single claims are in `discussion.md` next to the results, under headings such as ``## C1.3``; they are put
below that claim.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from predbn.common import PaperError
from predbn.report import Figure, metric_info, save, variant_file_names, write_file

from .claims import Finding, Verdict
from .experiment import Experiment
from .experiments import EXPERIMENTS
from .experiments.methods import CIFAR10_SERIES
from .markdown import bold_best, markdown_table
from .plans import PLANS
from .plans.cifar10 import METHODS
from .runs import Runs
from .series import METRICS, SHIFTED, TOP
from .verify import QUICK_WARNING, Findings, verdict_summary, verify

DISCUSSION = "discussion.md"


def document(runs: Runs, *, figures: str | None = None) -> str:
    """The document as Markdown; `figures` is the folder of the figures, relative to the document."""
    return _text(runs, figures, {} if figures is None else _draw_figures(runs))


def write_document(path: str | Path, runs: Runs, *, figures: str | Path | None = None) -> Path:
    """Write the document, and, if `figures` is given, the first variant of every figure into that folder.

    Links to figures are relative to the document.
    """
    path = Path(path)
    if figures is None:
        return write_file(path, document(runs).encode())
    drawn = _draw_figures(runs)
    text = _text(runs, Path(os.path.relpath(figures, path.parent)).as_posix(), drawn)
    for experiment, its_figures in drawn.items():
        for figure in its_figures:
            save(next(iter(figure.variants.values())).chart, Path(figures) / _file_name(experiment, figure))
    return write_file(path, text.encode())


def headline_table(runs: Runs) -> str:
    """The main result as a Markdown table, also for the README: means over all shifted splits, and at severity 5.

    For each method the better of the two strategies is bold.
    """
    labels = {
        metric: f"{metric_info(metric).label}{', %' if metric_info(metric).percent else ''}" for metric in METRICS
    }
    splits = CIFAR10_SERIES[0].values(runs, "accuracy", SHIFTED)[["corruption", "severity"]].drop_duplicates()
    heads = [f"{labels[metric]}, {where}" for where in (f"{len(splits)} splits", "severity 5") for metric in METRICS]
    rows: list[Sequence[str]] = []
    for pair in zip(CIFAR10_SERIES[::2], CIFAR10_SERIES[1::2], strict=True):
        columns = [
            bold_best(metric, [series.mean(runs, metric, severities) for series in pair])
            for severities in (SHIFTED, TOP)
            for metric in METRICS
        ]
        rows += zip([series.label for series in pair], *columns, strict=True)
    return markdown_table(["", *heads], rows)


def _experiments() -> list[Experiment]:
    """Those of the paper, without `auto`, which has its own page."""
    return [experiment for experiment in EXPERIMENTS.values() if experiment.page is None]


def _draw_figures(runs: Runs) -> dict[Experiment, list[Figure]]:
    return {experiment: experiment.figures(runs, only_first=True) for experiment in _experiments()}


def _text(runs: Runs, figures: str | None, drawn: dict[Experiment, list[Figure]]) -> str:
    runs.check()
    findings = verify(runs, [experiment.id for experiment in _experiments()])
    comments = {id: text for folder in runs.folders for id, text in _discussion(folder / DISCUSSION).items()}
    parts = [_head(runs, findings), _overview(findings)]
    for experiment, group in findings.items():
        images = [
            f"![{figure.title}]({figures}/{_file_name(experiment, figure)})\n\n*{figure.title}.* {figure.caption}"
            for figure in drawn.get(experiment, [])
        ]
        parts.append(_section(runs, experiment, group, comments, images))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _head(runs: Runs, findings: Findings) -> str:
    size = " --quick" if runs.is_quick else ""
    results = runs.folder.as_posix()
    folders = dict.fromkeys(runs.plan_folder(name).parent.as_posix() for name in runs.measured)
    lines = [
        "# Replication of the paper",
        f"{verdict_summary(findings)} `predbn paper document` generates this page from the results in "
        f"{' and '.join(f'`{folder}`' for folder in folders)}, which are made by `predbn paper run all{size} --results "
        f"{results}`; `predbn paper verify --results {results}` prints the same verdicts, and those of "
        "[auto](auto.md). The paper is Nado et al. 2020, [Evaluating Prediction-Time Batch Normalization for "
        "Robustness under Covariate Shift](https://arxiv.org/abs/2006.10963). Each figure is shown in one variant, for "
        "example for one metric; `predbn paper figures` draws all variants.",
        "Each claim is tested by measurements: a mean with a 95 % bootstrap interval, and a bound that the mean should "
        "be above or below. A measurement *holds* if the whole interval is on the right side of the bound, *does not "
        "hold* if it is on the wrong side, and is *not clear* if the interval includes the bound. A claim holds if all "
        "of its measurements do. Unless stated otherwise, intervals are over corruptions. Gains are signed so that "
        "positive is better, whichever way a metric points.",
    ]
    if runs.is_quick:
        lines.insert(1, f"**{QUICK_WARNING}**")
    if METHODS in runs.measured:
        table = headline_table(runs)
        lines.append(f"Means over the networks, with the better of train and prediction-time BN in bold:\n\n{table}")
    return "\n\n".join(lines)


def _overview(findings: Findings) -> str:
    rows = [
        [finding.claim.id, finding.claim.figure, finding.claim.statement, _verdict(finding)]
        for group in findings.values()
        for finding in group
    ]
    return "## Verdicts\n\n" + markdown_table(["claim", "in the paper", "statement", "verdict"], rows, "llll")


def _section(
    runs: Runs, experiment: Experiment, findings: list[Finding], comments: dict[str, str], images: list[str]
) -> str:
    lines = [f"## {experiment.id}: {experiment.title}", f"{experiment.figure[0].upper()}{experiment.figure[1:]}."]
    if experiment.plans:
        plans = "; ".join(f"`{name}`, {PLANS[name].what}{_data_size(runs, name)}" for name in experiment.plans)
        lines.append(f"Plans: {plans}.")
    lines += images
    for finding in findings:
        lines.append(_finding(finding))
        if finding.claim.id in comments:
            lines.append(comments[finding.claim.id])
    return "\n\n".join(lines)


def _file_name(experiment: Experiment, figure: Figure) -> str:
    """The file of the variant that the document shows."""
    return f"{experiment.id}-{variant_file_names(figure)[0]}.svg"


def _data_size(runs: Runs, plan: str) -> str:
    """The number of images or rows of a run, from its card."""
    data = runs.cards.get(plan, {}).get("data", {})
    return next((f" ({data[unit]:,} {unit})" for unit in ("images", "rows") if unit in data), "")


def _finding(finding: Finding) -> str:
    claim = finding.claim
    text = f"**{claim.id}** {claim.statement} {claim.interpretation}".strip() + f" → **{finding.verdict.value}**"
    text += f": {finding.why}." if finding.why else "."
    if not finding.measurements:
        return text
    rows = [
        [each.what, each.value, each.bounds, f"{each.count} {each.over}", each.expected, each.verdict.value]
        for each in finding.measurements
    ]
    table = markdown_table(["measured", "mean", "95 % interval", "over", "paper", ""], rows, "lrrlll")
    return f"{text}\n\n{table}"


def _verdict(finding: Finding) -> str:
    text = f"{finding.verdict.value}: {finding.why}" if finding.why else finding.verdict.value
    return text if finding.verdict in (Verdict.HOLDS, Verdict.UNMEASURED) else f"**{text}**"


def _discussion(path: Path) -> dict[str, str]:
    """The comments of a discussion file by claim."""
    if not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PaperError(f"{path} is not text in UTF-8 ({error.reason}): save it as UTF-8.") from None
    pieces = re.split(r"^## +(\S+)[^\n]*\n", text, flags=re.MULTILINE)
    return {id: text.strip() for id, text in zip(pieces[1::2], pieces[2::2], strict=True)}
