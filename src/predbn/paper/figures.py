"""All figures of the paper as files, and as one page with the verdicts beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from predbn.report import Panel, card_html, figure_html, save_panels, suffix_of
from predbn.report import render_page as render
from predbn.report import write_file as store

from .claims import Finding
from .experiment import Experiment
from .registry import choose
from .runs import Runs
from .verify import QUICK, summary, verify

__all__ = ["PAGE", "save_figures"]

PAGE = "replication.html"
TITLE = "Prediction-time batch normalisation: the paper's figures, measured"


def save_figures(
    folder: str | Path, runs: Runs, ids: Sequence[str] = (), *, suffixes: Sequence[str] = (".svg", ".pdf")
) -> list[Path]:
    """Write every figure that can be drawn from results in every form asked for, and all of them as one HTML page."""
    for suffix in suffixes:
        suffix_of(Path(f"figure{suffix}"))
    runs.check()
    drawn = {experiment: experiment.panels(runs) for experiment in choose(ids)}
    named = [
        replace(panel, name=f"{experiment.id}-{panel.name}") for experiment, panels in drawn.items() for panel in panels
    ]
    saved = [path for suffix in suffixes for path in save_panels(folder, named, suffix=suffix)]
    return [*saved, store(Path(folder) / PAGE, _page(runs, drawn))]


def _page(runs: Runs, drawn: dict[Experiment, list[Panel]]) -> bytes:
    found = verify(runs, [experiment.id for experiment in drawn])
    sections: list[str] = []
    numbered: list[Panel] = []
    for experiment, panels in drawn.items():
        figures = [figure_html(len(numbered) + place, panel) for place, panel in enumerate(panels)]
        numbered += panels
        claims = "".join(_claim(finding) for finding in found[experiment])
        heading = f"<h2>{experiment.id}: {escape(experiment.title)}</h2><p class='note'>{escape(experiment.figure)}</p>"
        sections.append(f"<section>{heading}<ul class='findings'>{claims}</ul>{''.join(figures)}</section>")
    return render(
        "gallery.html",
        TITLE,
        numbered,
        first=escape(summary(found)),
        note=escape(QUICK) if runs.is_quick else "",
        sections="\n".join(sections),
        card=card_html(runs.cards),
    )


def _claim(finding: Finding) -> str:
    claim = finding.claim
    verdict = f"<strong>{finding.verdict.value}</strong>{': ' + escape(finding.why) if finding.why else ''}"
    rows = "".join(
        f"<tr><td>{escape(each.what)}</td><td class='number'>{each.value}</td><td class='number'>{each.bounds}</td>"
        f"<td>{escape(each.expected)}</td><td>{each.verdict.value}</td></tr>"
        for each in finding.measurements
    )
    head = "<tr><th>measured</th><th class='number'>mean</th><th class='number'>95 %</th><th>paper</th><th></th></tr>"
    table = f"<details><summary>measurements</summary><div class='scroll'><table><thead>{head}</thead><tbody>{rows}"
    table += "</tbody></table></div></details>"
    return f"<li>{escape(claim.id)}: {escape(claim.statement)} {verdict}.{table if rows else ''}</li>"
