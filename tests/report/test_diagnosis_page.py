"""The page of a diagnosis as a reader opens it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from predbn.diagnostics import Diagnosis, diagnose
from predbn.report import write_diagnosis

from ..diagnostics.models import linear, normal
from . import browser
from .test_results_page import COUNT, needs_browser

USE = """
const select = document.querySelector("select");
const panels = () => [...select.closest("figure").querySelectorAll(".chart text")].map((text) => text.textContent);
const options = [...select.options].map((option) => option.value);
const before = panels();
select.value = "logits";
select.dispatchEvent(new Event("change"));
await wait(1500);
return { figures, overflow, options, before, after: panels(), rows: document.querySelectorAll("tbody tr").length };
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, diagnosis: Diagnosis) -> Path:
    card = {"model": "zoo:<b>mine</b>", "data": "sample", "corruption": "fog", "severity": 4}
    return write_diagnosis(tmp_path_factory.mktemp("diagnosis") / "diagnosis.html", diagnosis, card)


@needs_browser
def test_it_is_drawn_quietly_and_can_be_used(page: Path, diagnosis: Diagnosis) -> None:
    seen = browser.ask(page, COUNT + USE)
    assert seen["complaints"] == []
    assert seen["fetched"] == []
    assert seen["overflow"] <= 0
    titles = ["How far each layer moved", "Distributions of single channels", "Spectra", "Confidence"]
    assert [figure["title"] for figure in seen["figures"]] == titles
    assert seen["figures"][0]["symbols"] == 15
    assert seen["figures"][0]["legend"] == ["reference · batch", "shifted · train", "shifted · batch"]
    most = sorted(diagnosis.of("train", kind="batch norm"), key=lambda row: -row.distance)
    assert seen["options"] == [*(row.layer for row in most), "embeddings", "logits"]
    assert seen["before"] != seen["after"]
    assert seen["rows"] == 10


@needs_browser
def test_dark_on_a_phone(page: Path) -> None:
    seen = browser.ask(page, COUNT + "return { figures, overflow };", width=380, flags=(browser.DARK,))
    assert seen["complaints"] == []
    assert seen["overflow"] <= 0
    assert all(240 < figure["wide"] <= 380 for figure in seen["figures"])


def test_the_sentences_come_first_and_names_are_shown_as_text(page: Path, diagnosis: Diagnosis) -> None:
    text = page.read_text()
    assert re.search(r"<h1>The data has shifted: \d of 3 batch norm layers", text)
    assert all(f"<li>{sentence}".replace("'", "&#39;") in text for sentence in diagnosis.sentences()[1:])
    assert "zoo:&lt;b&gt;mine&lt;/b&gt; · sample fog 4 · 200 examples against 200 of the reference" in text
    assert "<b>mine" not in text.split("</main>")[0]


def test_a_model_without_batch_norm(tmp_path: Path) -> None:
    found = diagnose(linear(), [normal(50, 6)], [normal(50, 6, seed=1, mean=2.0)])
    text = write_diagnosis(tmp_path / "d.html", found, title="Mine").read_text()
    assert "<title>Mine</title>" in text
    assert "has no batch norm layer" in text
