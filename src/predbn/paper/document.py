"""The pages of docs/ on the replication, rendered from results with the Jinja2 templates in templates/: one template
for each page.

What there is to say about particular results is not in the templates but beside the results: `replication.md` in the
folder above those of the data sets, and `discussion.md` in that of each data set. A section of these files belongs to
a claim, such as ``## C1.3``, or to a place that a template names with `text(...)`. Templates and sections quote numbers
with the functions of `Values`, as in ``{{ value("C1.1", "accuracy", "vanilla") }}``, so that they cannot differ from
the results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from predbn.common import NotMeasured, PaperError
from predbn.report import Figure, metric_info, save, variant_file_names, write_file

from .borders import BORDER_FIGURE, BORDERS, MAIN, border_runs, gain_difference
from .claims import Finding, Verdict
from .experiment import FigureSpec
from .experiments import EXPERIMENTS, plans_of
from .experiments.methods import CIFAR10_SERIES
from .markdown import bold_best, markdown_table
from .natural import natural_tables
from .plans import PLANS
from .plans.cifar10 import METHODS
from .runs import Runs
from .series import METRICS, SHIFTED, TOP
from .values import Values
from .verify import QUICK_WARNING, Findings, verdict_summary, verify

PAGES = ("replication.md", "replication-claims.md", "replication-setup.md")
FIGURES = "replication"
"""The folder of the figures, in that of the pages."""
_BORDER_IDS = [id for id in EXPERIMENTS if id[0] == "C"]
"""The experiments whose claims are checked in the border study."""
NOT_COMPARED = ("C2.3",)
"""Claims that say nothing by border: the studies measured this one with crops of four black pixels on every set."""
_FUNCTIONS = [name for name in vars(Values) if not name.startswith("_")]
"""What templates can call without a prefix."""
_HEADING = re.compile(r"^## +([^\n]+)\n", re.MULTILINE)


def documents(runs: Runs, folder: str | Path = "docs") -> dict[str, str]:
    """Every page as Markdown, by file name. The pages show those figures that are in the subfolder `FIGURES`."""
    runs.check()
    environment = _environment(runs, Path(folder))
    pages = {}
    for page in PAGES:
        try:
            text = environment.get_template(f"{page}.j2").render(experiments=list(EXPERIMENTS.values()))
        except (jinja2.TemplateError, KeyError) as error:
            raise PaperError(f"{page} cannot be written from the texts in {runs.root}: {error}") from error
        pages[page] = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    return pages


def write_documents(folder: str | Path, runs: Runs, *, draw: bool = False) -> list[Path]:
    """Write every page into a folder; with `draw`, draw the figures first."""
    if draw:
        runs.check()
        for experiment in EXPERIMENTS.values():
            for figure in experiment.figures(runs, only_first=True):
                _save(figure, f"{experiment.id}-", Path(folder))
        _save(BORDER_FIGURE.draw(runs), "", Path(folder))
    return [write_file(Path(folder) / page, text.encode()) for page, text in documents(runs, folder).items()]


def headline_table(runs: Runs) -> str:
    """The main result as a Markdown table: means over all shifted splits, and at severity 5.

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


def _environment(runs: Runs, folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("predbn.paper"),
        autoescape=False,  # noqa: S701 the pages are Markdown
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    findings, sections = verify(runs), _read_sections(runs)
    values = Values(runs, _by_id(findings))
    sets = border_runs(runs)
    border_findings = {name: _by_id(verify(of_set, _BORDER_IDS)) for name, of_set in sets.items()}
    border_values = {name: Values(of_set, border_findings[name]) for name, of_set in sets.items()}
    measured_sets = [name for name, of_set in sets.items() if METHODS in of_set.measured]
    main = {MAIN: values} if METHODS in runs.measured else {}
    verdicts: dict[str, set[Verdict]] = {
        id: {of_set[id].verdict for of_set in (_by_id(findings), *(border_findings[name] for name in measured_sets))}
        for id in _by_id(findings)
        if id[0] == "C" and id not in NOT_COMPARED
    }
    # The texts may be those of somebody else: they can call these functions, and reach nothing else.
    functions = {name: getattr(values, name) for name in _FUNCTIONS} | {
        "border": border_values.__getitem__,
        "border_gain": lambda first, second, over: measured(lambda _: gain_difference(sets[first], sets[second], over)),
        "natural_tables": lambda: natural_tables(runs.root / "natural.json"),
    }
    sandbox = ImmutableSandboxedEnvironment(autoescape=False, undefined=jinja2.StrictUndefined)
    sandbox.globals |= functions

    def measured(make: Callable[..., str], *arguments: object) -> str:
        try:
            return make(runs, *arguments)
        except NotMeasured as error:
            return f"Not measured: {error}."

    environment.globals |= functions
    environment.globals |= {
        "BORDER_FIGURE": BORDER_FIGURE,
        "PLANS": PLANS,
        "QUICK_WARNING": QUICK_WARNING,
        "Verdict": Verdict,
        "border_sets": {**main, **{BORDERS[name]: border_values[name] for name in measured_sets}}
        if measured_sets
        else {},
        "border_claims": {id for id, found in verdicts.items() if len(found - {Verdict.UNMEASURED}) > 1},
        "figures": lambda specs, prefix: _figures(specs, prefix, runs, folder),
        "findings": findings,
        "images_of": values.images,
        "headline": lambda: measured(headline_table),
        "measured": measured,
        "plans_of": plans_of,
        "runs": runs,
        "summary": lambda experiments: verdict_summary({key: findings[key] for key in experiments}),
        "text": lambda heading: sandbox.from_string(sections.get(heading, "")).render(),
    }
    return environment


def _by_id(findings: Findings) -> dict[str, Finding]:
    return {finding.claim.id: finding for group in findings.values() for finding in group}


def _read_sections(runs: Runs) -> dict[str, str]:
    """The sections of the texts beside the results, by heading."""
    sections: dict[str, str] = {}
    for path in (runs.root / "replication.md", *(f / "discussion.md" for f in runs.folders)):
        if path.is_file():
            try:
                pieces = _HEADING.split(path.read_text(encoding="utf-8"))
            except UnicodeDecodeError as error:
                raise PaperError(f"{path} is not UTF-8 ({error.reason}): save it as UTF-8.") from None
            headings = (heading.strip() for heading in pieces[1::2])
            sections |= zip(headings, (body.strip() for body in pieces[2::2]), strict=True)
    return sections


def _save(figure: Figure, prefix: str, folder: Path) -> None:
    for name, variant in zip(variant_file_names(figure), figure.variants.values(), strict=True):
        save(variant.chart, folder / FIGURES / f"{prefix}{name}.svg")


def _figures(specs: Sequence[FigureSpec], prefix: str, runs: Runs, folder: Path) -> list[dict[str, Any]]:
    """Title, caption and link of those figures that have been drawn."""
    shown = []
    for spec in specs:
        for choice in spec.variants(runs, only_first=True):
            (name,) = variant_file_names(Figure(spec.name, "", "", spec.choices, {choice: None}))  # type: ignore[dict-item]
            link = f"{FIGURES}/{prefix}{name}.svg"
            if (folder / link).is_file():
                network = f", {choice[0]}" if spec.choices[:1] == ("network",) else ""
                shown.append({"title": f"{spec.title}{network}", "caption": spec.caption, "link": link})
    return shown
