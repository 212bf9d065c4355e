"""All figures as files, and as one HTML page with the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from predbn.report import Figure, card_html, check_suffix, figure_html, render_page, save_variants, write_file

from .claims import Finding
from .experiment import Experiment
from .experiments import choose
from .runs import Runs
from .verify import QUICK_WARNING, verdict_summary, verify

PAGE = "replication.html"
TITLE = "Prediction-time batch normalisation: the paper's figures, measured"


def save_figures(
    folder: str | Path, runs: Runs, ids: Sequence[str] = (), *, suffixes: Sequence[str] = (".svg", ".pdf")
) -> list[Path]:
    """Write every figure that can be drawn, in each of the formats, and a page with all of them.

    Returns the paths; the page is the last one.
    """
    for suffix in suffixes:
        check_suffix(Path(f"figure{suffix}"))  # refuses an unknown format before anything is drawn
    runs.check()
    figures = {experiment: experiment.figures(runs) for experiment in choose(ids)}
    named = [
        replace(figure, name=f"{experiment.id}-{figure.name}")
        for experiment, drawn in figures.items()
        for figure in drawn
    ]
    saved = [path for suffix in suffixes for path in save_variants(folder, named, suffix=suffix)]
    return [*saved, write_file(Path(folder) / PAGE, _page(runs, figures))]


def _page(runs: Runs, figures: dict[Experiment, list[Figure]]) -> bytes:
    findings = verify(runs, [experiment.id for experiment in figures])
    sections: list[str] = []
    numbered: list[Figure] = []
    for experiment, drawn in figures.items():
        charts = [figure_html(len(numbered) + number, figure) for number, figure in enumerate(drawn)]
        numbered += drawn
        claims = "".join(_claim(finding) for finding in findings[experiment])
        heading = f"<h2>{experiment.id}: {escape(experiment.title)}</h2><p class='note'>{escape(experiment.figure)}</p>"
        sections.append(f"<section>{heading}<ul class='findings'>{claims}</ul>{''.join(charts)}</section>")
    return render_page(
        "gallery.html",
        TITLE,
        numbered,
        first=escape(verdict_summary(findings)),
        note=escape(QUICK_WARNING) if runs.is_quick else "",
        sections="\n".join(sections),
        card=card_html(runs.cards),
    )


def _claim(finding: Finding) -> str:
    """The statement and the verdict, with the measurements to unfold."""
    verdict = f"<strong>{finding.verdict.value}</strong>{': ' + escape(finding.why) if finding.why else ''}"
    rows = "".join(
        f"<tr><td>{escape(each.what)}</td><td class='number'>{each.value}</td><td class='number'>{each.bounds}</td>"
        f"<td>{escape(each.expected)}</td><td>{each.verdict.value}</td></tr>"
        for each in finding.measurements
    )
    head = "<tr><th>measured</th><th class='number'>mean</th><th class='number'>95 %</th><th>paper</th><th></th></tr>"
    table = f"<details><summary>measurements</summary><div class='scroll'><table><thead>{head}</thead><tbody>{rows}"
    table += "</tbody></table></div></details>"
    return f"<li>{escape(finding.claim.id)}: {escape(finding.claim.statement)} {verdict}.{table if rows else ''}</li>"
