"""All figures as files, and as one HTML page with the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from predbn.report import check_suffix, render_page, save_variants, write_file

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
    findings = verify(runs, ids)
    sections = [(experiment, findings[experiment], experiment.figures(runs)) for experiment in findings]
    named = [
        replace(figure, name=f"{experiment.id}-{figure.name}")
        for experiment, _, figures in sections
        for figure in figures
    ]
    saved = [path for suffix in suffixes for path in save_variants(folder, named, suffix=suffix)]
    page = render_page(
        "gallery.html",
        TITLE,
        [figure for *_, figures in sections for figure in figures],
        summary=verdict_summary(findings),
        note=QUICK_WARNING if runs.is_quick else "",
        sections=sections,
        cards=runs.cards,
    )
    return [*saved, write_file(Path(folder) / PAGE, page)]
