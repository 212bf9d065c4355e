"""The report of a real shift as a reader opens it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predbn.data import ReferenceAndData, open_in_order
from predbn.recommendation import ShiftResults, evaluate_shift
from predbn.report import write_shift
from predbn.report.shift_page import strategies_table

from ..recommendation import colours
from . import browser
from .test_results_page import needs_browser

USE = """
const overflow = document.documentElement.scrollWidth - innerWidth;
return { overflow, h1: document.querySelector("h1").textContent, code: document.querySelector("pre")?.textContent,
  first: document.querySelector("main").innerText.split("\\n").filter((line) => line.trim())[1],
  headings: [...document.querySelectorAll("th")].filter((th) => th.offsetWidth).map((th) => th.textContent),
  intervals: [...document.querySelectorAll("td small")].filter((small) => small.offsetWidth).length,
  rows: document.querySelectorAll("tbody tr").length,
  pictures: [...document.querySelectorAll(".pictures img")].map((image) => image.naturalWidth) };
"""


def evaluate(root: Path, *, labelled: bool) -> ShiftResults:
    colours.write_folder(root / "old", *colours.pictures(60))
    colours.write_folder(root / "new", *colours.pictures(120, shifted=True), flat=not labelled)
    pair = ReferenceAndData(*(open_in_order(str(root / name), "test") for name in ("old", "new")))
    options = {"strategies": ["batch", "prior"], "batch_sizes": [10, 20], "progress": False, "device": "cpu"}
    return evaluate_shift(colours.classifier(), pair, **options)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> ShiftResults:
    return evaluate(tmp_path_factory.mktemp("labelled"), labelled=True)


@needs_browser
@pytest.mark.parametrize(("width", "flags"), [(1280, ()), (400, (browser.DARK,))])
def test_the_recommendation_comes_first(
    labelled: ShiftResults, tmp_path: Path, width: int, flags: tuple[str, ...]
) -> None:
    page = write_shift(tmp_path / "report.html", labelled.results, labelled.findings)
    seen = browser.ask(page, USE, width=width, flags=flags)
    assert seen["complaints"] == []
    assert seen["fetched"] == []
    assert seen["overflow"] <= 0
    assert seen["first"] == seen["h1"] == labelled.sentences()[0]
    assert seen["code"] == labelled.python()
    assert seen["rows"] == len(labelled.shift.strategies) == 5
    assert seen["intervals"] == 4
    assert seen["pictures"] == [colours.SIDE] * 16
    narrow = ["strategy", "batch", "accuracy, %", "change, points"]
    wide = [*narrow, "Brier score", "ECE", "same as train, %"]
    assert seen["headings"] == (wide if width > 1000 else narrow)


@needs_browser
def test_without_labels_it_says_what_would_change(tmp_path: Path) -> None:
    unlabelled = evaluate(tmp_path, labelled=False)
    page = write_shift(tmp_path / "report.html", unlabelled.results, unlabelled.findings)
    seen = browser.ask(page, USE, width=1280)
    assert seen["complaints"] == []
    assert seen["h1"].startswith("Leave the model alone for now: the new data has no labels")
    assert "code" not in seen
    assert seen["headings"] == ["strategy", "batch", "confidence, %", "same as train, %"]


def test_the_table_has_the_paired_intervals(labelled: ShiftResults) -> None:
    table = strategies_table(labelled.shift)
    columns = {column.heading: column for column in table.columns}
    changes, brier = columns["change, points"], columns["Brier change"]
    predictions = labelled.results.predictions.query("corruption == 'data'")
    hits = {
        (row["strategy"], row["batch_size"]): (row["predicted"] == row["label"]).astype(float)
        for row in predictions.to_dict("records")
    }
    for row, strategy in enumerate(labelled.shift.strategies[1:], start=1):
        difference = hits[strategy.strategy, strategy.batch_size] - hits["train", 10]
        gain, brier_gain = strategy.gains["accuracy"], strategy.gains["brier"]
        assert changes.values[row] == pytest.approx(100 * np.mean(difference))
        assert changes.intervals[row] == pytest.approx((100 * gain.low, 100 * gain.high))
        assert brier.values[row] == pytest.approx(-brier_gain.estimate)
        assert brier.intervals[row] == pytest.approx((-brier_gain.high, -brier_gain.low))
    assert changes.cells[0] == "–"


def test_several_comparisons_are_named(labelled: ShiftResults, tmp_path: Path) -> None:
    tables = {"frame": labelled.results.frame, "predictions": labelled.results.predictions}
    doubled = {name: pd.concat([rows, rows.assign(model="<b>other</b>")]) for name, rows in tables.items()}
    text = write_shift(tmp_path / "report.html", replace(labelled.results, **doubled)).read_text()
    assert text.split("</main>")[0].count("<pre>") == 2
    assert "model &lt;b&gt;other&lt;/b&gt;, method vanilla, order official, seed 0" in text
    assert "2 models" in text
