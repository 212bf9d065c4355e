"""The document says what the results say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from predbn.paper import PLANS, PaperError, Runs, document, headline_table, save_figures, verify, write_document
from predbn.paper.runs import RESULTS

from .world import World

ROOT = Path(__file__).resolve().parents[2]
REPLICATION = ROOT / "docs" / "replication.md"


def test_every_claim_is_in_it_with_its_verdict(as_the_paper):
    text = document(as_the_paper)
    for experiment, findings in verify(as_the_paper).items():
        for finding in findings if experiment.page is None else ():
            row = next(line for line in text.splitlines() if line.startswith(f"| {finding.claim.id} |"))
            assert finding.verdict.value in row
            assert all(each.bounds in text for each in finding.measurements)


def test_the_headline_is_the_mean_over_networks_and_splits(as_the_paper):
    frame = as_the_paper["methods"].frame
    rows = frame[(frame["method"] == "vanilla") & (frame["strategy"] == "batch") & (frame["metric"] == "accuracy")]
    lines = headline_table(as_the_paper).splitlines()
    assert len(lines) == 8
    cells = next(line for line in lines if line.startswith("| vanilla, prediction BN |")).split("|")
    assert cells[2].strip(" *") == f"{100 * rows[rows['severity'] > 0]['value'].mean():.1f}"
    assert cells[5].strip(" *") == f"{100 * rows[rows['severity'] == 5]['value'].mean():.1f}"
    assert "95 splits" in lines[0]


def test_a_discussion_is_below_its_claim(tmp_path):
    runs = Runs(World(0.0).write(tmp_path / "r", quick=True, skip=("batch-sizes", "normalisations")))
    (tmp_path / "r" / "discussion.md").write_text("Notes.\n\n## C1.1\nThere is no effect here.\n\n## C7.1\nNor here.\n")
    text = document(runs)
    assert text.index("**C1.1 ") < text.index("There is no effect here.") < text.index("**C1.2 ")
    assert text.index("**C7.1 ") < text.index("Nor here.")
    assert "quick results" in text
    (tmp_path / "r" / "discussion.md").write_bytes(b"\xff")
    with pytest.raises(PaperError, match=r"discussion\.md is not text in UTF-8"):
        document(runs)


def test_the_sections_come_in_order_and_our_own_claims_apart(tmp_path):
    runs = Runs(World().write(tmp_path / "r", skip=("batch-sizes",)))
    sections = ("Deviations", "Findings", "Setup", "Corrections")
    (tmp_path / "r" / "replication.md").write_text("".join(f"## {name}\n\nOn {name}.\n\n" for name in sections))
    text = document(runs)
    headings = re.findall("^## (.*)$", text, re.MULTILINE)
    paper, own = "Claims of the paper", "Claims of our own"
    assert headings == ["Setup", "Deviations", "Findings", paper, own, "Corrections"]
    assert all(f"On {name}." in text for name in sections)
    of_paper, of_us = text.split(f"## {own}")
    assert "**C1.1 " in of_paper
    assert "**C2.3 " in of_us
    assert "**C2.3 " not in of_paper
    assert "| measured | mean | 95 % interval | over | must be | |" in text


def test_links_are_relative_to_the_document(tmp_path):
    runs = Runs(World().write(tmp_path / "r", quick=True, skip=tuple(name for name in PLANS if name != "methods")))
    path = write_document(tmp_path / "docs" / "replication.md", runs, figures=tmp_path / "docs" / "figures")
    linked = set(re.findall(r"\]\(figures/([^)]+)\)", path.read_text()))
    assert "C1-methods-Brier-score.svg" in linked
    assert linked == {file.name for file in (tmp_path / "docs" / "figures").iterdir()}


def test_a_folder_without_results_is_refused(nothing, tmp_path):
    for write in (
        document,
        lambda runs: save_figures(tmp_path, runs),
        lambda runs: write_document(tmp_path / "d", runs),
    ):
        with pytest.raises(PaperError, match="has no results: make some with predbn paper run"):
            write(nothing)


@pytest.mark.skipif(not (ROOT / RESULTS).is_dir(), reason="there are no committed results yet")
def test_the_committed_document_is_that_of_the_committed_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    figures = "replication" if (ROOT / "docs" / "replication").is_dir() else None
    assert REPLICATION.read_text() == document(Runs(RESULTS), figures=figures), "run: predbn paper document"
