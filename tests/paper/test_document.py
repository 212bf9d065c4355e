"""The pages say what the results say."""

import json
import re
from pathlib import Path

import pytest

from predbn.commands.paper import FULL as RESULTS
from predbn.common import PaperError
from predbn.metrics import Interval
from predbn.paper import PLANS, Finding, Runs, save_figures, verify, write_documents
from predbn.paper.borders import BORDERS, border_runs, gain_difference
from predbn.paper.claims import Claim, Measurement, Verdict
from predbn.paper.document import PAGES, documents, headline_table
from predbn.paper.natural import natural_tables
from predbn.paper.values import Values

from .world import World

ROOT = Path(__file__).resolve().parents[2]
STUDY = tuple(name for name in PLANS if name not in ("methods", "inside-crops"))


@pytest.fixture(scope="module")
def pages(as_the_paper, tmp_path_factory):
    return documents(as_the_paper, tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="module")
def studied(tmp_path_factory) -> Runs:
    """Results with two of the three sets of the border study, and texts."""
    folder = World().write(tmp_path_factory.mktemp("study") / "r", quick=True, skip=STUDY)
    World(1.0).write(folder / "border-zero-4", quick=True, skip=STUDY)
    World(0.0).write(folder / "border-reflect-4", quick=True, skip=STUDY)
    sections = {
        "The border of training crops": 'Gain: {{ border("zero-4").value("C2.1", "accuracy") }}.',
        "Findings": 'C1.1 {{ border("reflect-4").verdict("C1.1") }}, {{ border("zero-4").verdict("C3.1") }}.',
        "Setup": "{{ images('methods') }}.",
    }
    (folder / "replication.md").write_text("".join(f"## {name}\n\n{text}\n\n" for name, text in sections.items()))
    (folder / "discussion.md").write_text("Notes.\n\n## C1.1\nAbout C1.1.\n\n## D1.1\nAbout D1.1.\n")
    return Runs(folder)


def cells(text: str, start: str) -> list[str]:
    row = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in row.split("|")[2:-1]]


def test_every_claim_is_shown_with_its_verdict_and_measurements(pages, as_the_paper):
    paragraphs = pages["replication-claims.md"].split("\n\n")
    for findings in verify(as_the_paper).values():
        for finding in findings:
            (shown,) = (text for text in paragraphs if text.startswith(f"**{finding.claim.id}** "))
            assert shown.partition(") ")[2].lstrip("*").startswith(finding.verdict.value)
            assert all(each.value in shown and each.intervals in shown for each in finding.measurements)


def test_the_headline_is_the_mean_over_networks_and_splits(as_the_paper):
    frame = as_the_paper["methods"].frame
    rows = frame[(frame["method"] == "vanilla") & (frame["strategy"] == "batch") & (frame["metric"] == "accuracy")]
    lines = headline_table(as_the_paper).splitlines()
    assert len(lines) == 8
    row = cells("\n".join(lines), "vanilla, prediction BN |")
    assert row[0].strip("*") == f"{100 * rows[rows['severity'] > 0]['value'].mean():.1f}"
    assert row[3].strip("*") == f"{100 * rows[rows['severity'] == 5]['value'].mean():.1f}"
    assert "95 splits" in lines[0]


def test_texts_beside_the_results_are_shown_in_their_places(studied, tmp_path):
    pages = documents(studied, tmp_path)
    assert "About C1.1." in pages["replication-claims.md"].split("**C1.2**")[0]
    assert "About D1.1." in pages["replication-claims.md"].split("**D2.1**")[0]
    assert re.search(r"C1\.1 (not clear|does not hold), not measured\.", pages["replication.md"])
    assert "quick results" in pages["replication.md"]
    assert "10,000 images." in pages["replication-setup.md"]


def test_each_border_has_its_own_numbers_and_verdicts(studied, tmp_path):
    text = documents(studied, tmp_path)["replication-setup.md"]
    assert cells(text, "claim")[1:] == [BORDERS["zero-4"], BORDERS["reflect-4"]]
    assert cells(text, "networks") == ["3", "3", "3"]
    assert cells(text, "C1.1:")[:2] == ["holds", "holds"] != cells(text, "C1.1:")[1:]
    for row, strategy in (("train BN", "train"), ("prediction BN", "batch")):
        expected = []
        for runs in (studied, border_runs(studied)["zero-4"], border_runs(studied)["reflect-4"]):
            clean = runs["methods"].frame.query("severity == 0 and metric == 'accuracy' and method == 'vanilla'")
            expected.append(f"{100 * clean[clean['strategy'] == strategy]['value'].mean():.1f}")
        assert cells(text, f"accuracy on clean images, %, {row}") == expected
    gain = cells(text, "gain of prediction BN on clean images, points")[1]
    assert f"Gain: {gain.partition(' ')[0]}." in text
    assert "| C2.3:" not in text
    assert "nan" not in text


def test_the_gains_of_two_sets_are_paired_by_corruption(studied):
    sets = border_runs(studied)
    gains = []
    for name in ("zero-4", "reflect-4"):
        rows = sets[name]["methods"].frame.query("metric == 'accuracy' and method == 'vanilla' and severity > 0")
        means = rows.groupby(["strategy", "corruption"], observed=True)["value"].mean().unstack(0)
        gains.append(means["batch"] - means["train"])
    expected = 100 * (gains[0] - gains[1])
    assert gain_difference(sets["zero-4"], sets["reflect-4"], "corruption").startswith(f"{expected.mean():.1f} (")
    assert gain_difference(sets["zero-4"], sets["zero-4"], "corruption") == "0.0 (0.0 to 0.0)"


def test_natural_shift_is_shown_as_gains_over_train_bn(tmp_path):
    train = {"right": "1100", "brier": [0.1, 0.2, 1.0, 1.2], "confidence": [0.5] * 4}
    batch = {"right": "1111", "brier": [0.1, 0.2, 0.5, 0.7], "confidence": [0.5] * 4}
    units = {"Net, edges, train": train, "Net, edges, batch": batch, "Net, photos, train": train}
    (tmp_path / "natural.json").write_text(json.dumps({"units": units}))
    row = cells(natural_tables(tmp_path / "natural.json"), "Net, edges")
    assert row[:3] == ["4", "50.0", "+50.0 (+0.0 to +100.0)"]
    assert row[3].startswith("+0.250 (")
    assert natural_tables(tmp_path / "none.json") == "Not measured."


def test_figures_are_drawn_and_linked_relative_to_the_pages(tmp_path):
    runs = Runs(World().write(tmp_path / "r", quick=True, skip=tuple(name for name in PLANS if name != "crops")))
    World().write(tmp_path / "r" / "border-zero-4", quick=True, skip=STUDY)
    written = write_documents(tmp_path / "docs", runs, draw=True)
    assert [path.name for path in written] == list(PAGES)
    linked = {link for path in written for link in re.findall(r"\]\(replication/([^)]+)\)", path.read_text())}
    assert linked == {file.name for file in (tmp_path / "docs" / "replication").iterdir()} == {"border-gain.svg"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"## Findings\n\xff", r"replication\.md is not UTF-8"),
        (b"## Findings\n{{ verdict('C9.9') }}", "There is no claim 'C9.9'"),
        (b"## Findings\n{{ verdict( }}", "cannot be written from the texts"),
        (b"## Findings\n{{ nothing() }}", "'nothing' is undefined"),
        (b"## Findings\n{{ runs.folder.unlink() }}", "'runs' is undefined"),
        (b"## Findings\n{{ value.__globals__ }}", "access to attribute '__globals__'"),
        (b"## Findings\n{{ border('zero-4')._runs }}", "access to attribute '_runs'"),
        (b"## Findings\n{{ mean('methods', 'train', 'ece', 7) }}", "got methods and 7"),
    ],
)
def test_a_wrong_text_is_refused(text, message, tmp_path):
    runs = Runs(World().write(tmp_path / "r", quick=True, skip=tuple(name for name in PLANS if name != "crops")))
    (tmp_path / "r" / "replication.md").write_bytes(text)
    with pytest.raises(PaperError, match=message):
        documents(runs, tmp_path)


def test_a_folder_without_results_is_refused(nothing, tmp_path):
    for write in (documents, lambda runs: save_figures(tmp_path, runs), lambda runs: write_documents(tmp_path, runs)):
        with pytest.raises(PaperError, match="has no results: make some with predbn paper run"):
            write(nothing)


GAINS = tuple(
    Measurement(f"{metric}: gain ({method})", Interval(value, value - 0.01, value + 0.01, 0.95), "above", 0.0, 19, "x")
    for metric, method, value in (("ECE", "vanilla", 0.09), ("ECE", "ensemble", -0.05), ("Brier", "vanilla", 0.2))
)


def found(id: str, verdict: Verdict = Verdict.HOLDS, measurements: tuple[Measurement, ...] = GAINS) -> Finding:
    return Finding(Claim(id, "figure 1", "s", "t", lambda runs: measurements), verdict, measurements)


FINDINGS = {"X.1": found("X.1"), "X.2": found("X.2", Verdict.UNMEASURED, ()), "X.3": found("X.3", Verdict.FAILS)}


def test_a_value_is_that_of_the_only_measurement_with_these_words(nothing):
    values = Values(nothing, FINDINGS)
    assert values.value("X.1", "ECE", "vanilla") == "+0.090"
    assert values.size("X.1", "ECE", "ensemble") == "0.050"
    assert values.with_bounds("X.1", "Brier") == "+0.200 (+0.190 to +0.210)"
    assert values.verdict("X.3") == "does not hold"
    assert values.bounds("X.2", "ECE") == values.mean("methods", "train", "accuracy", 5) == "not measured"
    for words, count in ((["ECE"], 2), (["AUC"], 0)):
        with pytest.raises(PaperError, match=f"has {count} measurements"):
            values.value("X.1", *words)


@pytest.mark.skipif(not (ROOT / RESULTS).is_dir(), reason="there are no committed results yet")
def test_the_committed_pages_are_those_of_the_committed_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    for page, text in documents(Runs(RESULTS)).items():
        assert (ROOT / "docs" / page).read_text() == text, "run: predbn paper document"
        assert len(text.splitlines()) <= 250
