"""docs/replication.md, generated from results: setup, deviations, findings, and every claim with figure and verdict.

The text is written by hand next to the results (see `prose`): `replication.md` has the sections of `_SECTIONS`, and
`discussion.md` of each data set what there is to say about single claims. All numbers are filled in from the results.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from predbn.report import Figure, metric_info, save, variant_file_names, write_file

from .borders import FIGURE as BORDER_FIGURE
from .borders import FIGURE_CAPTION as BORDER_CAPTION
from .borders import HEADING as BORDER_HEADING
from .borders import border_figure, border_tables
from .claims import Finding, Verdict
from .experiment import Experiment, FigureSpec
from .experiments import EXPERIMENTS, plans_of
from .experiments.methods import CIFAR10_SERIES
from .markdown import bold_best, markdown_table
from .plans import PLANS
from .plans.cifar10 import METHODS
from .prose import fill_in, read_sections
from .runs import Runs
from .series import METRICS, SHIFTED, TOP
from .verify import QUICK_WARNING, Findings, verdict_summary, verify

DISCUSSION = "discussion.md"
SECTIONS = "replication.md"
HEADLINE = "{{headline table}}"
"""The field of that text where `headline_table` goes."""
Drawn = dict[Experiment, list[tuple[FigureSpec, Figure]]]
"""The figures of each experiment, drawn in one variant."""


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
        for _, figure in its_figures:
            save(next(iter(figure.variants.values())).chart, Path(figures) / _file_name(experiment, figure))
    of_borders = border_figure(runs)
    if of_borders is not None:
        save(of_borders, Path(figures) / BORDER_FIGURE)
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
    """Those of this page; `auto` has its own."""
    return [experiment for experiment in EXPERIMENTS.values() if experiment.page is None]


def _draw_figures(runs: Runs) -> Drawn:
    return {
        experiment: [
            (spec, figure) for spec in experiment.figure_specs(runs) if (figure := spec.draw(only_first=True)).variants
        ]
        for experiment in _experiments()
    }


def _text(runs: Runs, figures: str | None, drawn: Drawn) -> str:
    runs.check()
    findings = verify(runs, [experiment.id for experiment in _experiments()])
    every = [finding for group in findings.values() for finding in group]
    sections = read_sections(runs.root / SECTIONS)
    if METHODS in runs.measured:
        sections = {name: text.replace(HEADLINE, headline_table(runs)) for name, text in sections.items()}
    comments = {id: text for folder in runs.folders for id, text in read_sections(folder / DISCUSSION).items()}

    def section(heading: str, *generated: str) -> str:
        parts = (sections.get(heading, ""), *generated)
        return "\n\n".join([f"## {heading}", *(part for part in parts if part)]) if any(parts) else ""

    parts = [
        _head(runs, findings),
        section("Setup", _METHOD, _plans(runs)),
        section("Deviations"),
        section("Findings"),
        _claims(runs, findings, comments, drawn, figures, of_paper=True),
        _claims(runs, findings, comments, drawn, figures, of_paper=False),
        _borders(sections.get(BORDER_HEADING, ""), border_tables(runs), figures),
        section("Corrections"),
    ]
    return fill_in("\n\n".join(part for part in parts if part) + "\n", runs, every)


_METHOD = """Each claim is tested by measurements: a mean with its 95 % interval, and a bound that the mean must be \
above or below. The paper rarely gives a number, so the bounds are ours. A measurement *holds* if the whole interval \
is on the right side of the bound, *does not hold* if it is on the wrong side, and is *not clear* if the interval \
includes the bound or rests on fewer than three values. A claim holds if all of its measurements do. Gains are signed \
so that positive is better, whichever way a metric points.

Intervals say how far a mean would move with other corruptions, networks, draws or images; each table says which. The \
severities of one corruption are not independent, so they are averaged first. Intervals of means are Student's, and \
those of ratios of means are Fieller's: both keep their level with few values, and neither uses random numbers. \
Intervals over the rows of Criteo are bootstrapped over rows and networks when the plan is run, and rank correlations \
over corruptions; no verdict depends on the seed (`predbn paper verify --seed 1`)."""


def _head(runs: Runs, findings: Findings) -> str:
    size = " --quick" if runs.is_quick else ""
    results = runs.folder.as_posix()
    folders = dict.fromkeys(runs.plan_folder(name).parent.as_posix() for name in runs.measured)
    lines = [
        "# Replication of the paper",
        "The paper is Nado et al. 2020, [Evaluating Prediction-Time Batch Normalization for Robustness under Covariate "
        f"Shift](https://arxiv.org/abs/2006.10963). {verdict_summary(findings)}",
        "`predbn paper document` generates this page from the results in "
        f"{_listed([f'`{each}`' for each in folders])}, which `predbn paper run all{size} --results {results}` makes. "
        f"`predbn paper verify --results {results}` prints the same verdicts, and those on [auto](auto.md). Each "
        "figure is shown in one variant, for example for one metric; `predbn paper figures` draws all.",
    ]
    if runs.is_quick:
        lines.insert(1, f"**{QUICK_WARNING}**")
    return "\n\n".join(lines)


def _plans(runs: Runs) -> str:
    """What was computed, on how many images or rows."""
    names = [name for name in plans_of(_experiments()) if name in runs.measured]
    rows = [[f"`{name}`", PLANS[name].what, runs.size(name)] for name in names]
    return "What was computed, by plan:\n\n" + markdown_table(["plan", "what it computes", "data"], rows, "llr")


def _claims(
    runs: Runs, findings: Findings, comments: dict[str, str], drawn: Drawn, figures: str | None, *, of_paper: bool
) -> str:
    """The claims of the paper, or those of our own: a table of verdicts, and a section for each experiment."""
    chosen = {
        experiment: [finding for finding in group if finding.claim.is_of_paper == of_paper]
        for experiment, group in findings.items()
    }
    rows = [
        [
            finding.claim.id,
            *([finding.claim.figure or ""] if of_paper else []),
            finding.claim.statement,
            _verdict(finding),
        ]
        for group in chosen.values()
        for finding in group
    ]
    heads = ["claim", *(["in the paper"] if of_paper else []), "statement", "verdict"]
    parts = [
        f"## Claims {'of the paper' if of_paper else 'of our own'}",
        "" if of_paper else _OWN,
        markdown_table(heads, rows, "l" * len(heads)),
    ]
    for experiment, group in chosen.items():
        if group:
            images = _images(experiment, drawn, figures, of_paper)
            parts.append(_section(experiment, group, comments, images, of_paper))
    return "\n\n".join(part for part in parts if part)


def _borders(text: str, tables: str, figures: str | None) -> str:
    """The border study; nothing, not even its text, before there are results of it."""
    figure = "" if figures is None else f"![{BORDER_HEADING}]({figures}/{BORDER_FIGURE})\n\n{BORDER_CAPTION}"
    return "\n\n".join(part for part in (f"## {BORDER_HEADING}", text, figure, tables) if part) if tables else ""


_OWN = """These are not in the paper: questions that its claims raised, and its claims on other data or networks than \
its own. They are not counted among its claims."""


def _images(experiment: Experiment, drawn: Drawn, figures: str | None, of_paper: bool) -> list[str]:
    """The figures of an experiment as Markdown; a caption that has just been read is not repeated."""
    images, previous = [], ""
    for spec, figure in drawn.get(experiment, []):
        if spec.is_own is not of_paper:
            caption = "" if figure.caption == previous else f" {figure.caption}"
            images.append(
                f"![{figure.title}]({figures}/{_file_name(experiment, figure)})\n\n*{figure.title}.*{caption}"
            )
            previous = figure.caption
    return images


def _section(
    experiment: Experiment, findings: list[Finding], comments: dict[str, str], images: list[str], of_paper: bool
) -> str:
    where = f" ({experiment.figure})" if of_paper else ""
    lines = [f"### {experiment.id}: {experiment.title}{where}", *images]
    if experiment.plans and any(finding.measurements for finding in findings):
        lines.insert(1, f"Plans: {', '.join(f'`{name}`' for name in experiment.plans)}.")
    for finding in findings:
        lines.append(_finding(finding))
        if finding.claim.id in comments:
            lines.append(comments[finding.claim.id])
    return "\n\n".join(lines)


def _file_name(experiment: Experiment, figure: Figure) -> str:
    """The file of the variant that the document shows."""
    return f"{experiment.id}-{variant_file_names(figure)[0]}.svg"


def _finding(finding: Finding) -> str:
    claim = finding.claim
    verdict = f"{finding.verdict.value}: {finding.why}" if finding.why else finding.verdict.value
    text = f"**{claim.id} {claim.statement}** {claim.interpretation}".strip() + f" → **{verdict}**"
    if not finding.measurements:
        return text
    rows = [
        [each.what, each.value, each.bounds, each.number, each.required, each.verdict.value]
        for each in finding.measurements
    ]
    table = markdown_table(["measured", "mean", "95 % interval", "over", "must be", ""], rows, "lrrlll")
    return f"{text}\n\n{table}"


def _verdict(finding: Finding) -> str:
    text = finding.verdict.value
    return text if finding.verdict in (Verdict.HOLDS, Verdict.UNMEASURED) else f"**{text}**"


def _listed(names: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
