"""The page of an examination as a reader opens it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from predbn.common import ReportError
from predbn.diagnostics import Examination, examine
from predbn.report import write_examination
from predbn.report.figures import fit_by_layer

from ..norm.models import images, net
from . import browser
from .test_results_page import COUNT, needs_browser

USE = """
const select = document.querySelector("select");
return { figures, overflow, options: [...select.options].map((option) => option.value),
  rows: document.querySelectorAll("tbody tr").length };
"""


@pytest.fixture(scope="module")
def examination() -> Examination:
    """Three layers with statistics that fit nothing, and data that has shifted."""
    torch.set_num_threads(1)
    return examine(net(), images(80, seed=2, shift=1.5), images(80, seed=1))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, examination: Examination) -> Path:
    path = tmp_path_factory.mktemp("examination") / "doctor.html"
    return write_examination(path, examination, {"model": "zoo:<b>mine</b>"})


@needs_browser
@pytest.mark.parametrize(("width", "flags"), [(1000, ()), (380, (browser.DARK,))])
def test_it_is_drawn_quietly(page: Path, width: int, flags: tuple[str, ...]) -> None:
    seen = browser.ask(page, COUNT + USE, width=width, flags=flags)
    assert seen["complaints"] == []
    assert seen["fetched"] == []
    assert seen["overflow"] <= 0
    titles = ["How well the stored statistics fit", "How far the data has shifted", "Channel by channel"]
    assert [figure["title"] for figure in seen["figures"]] == titles
    assert seen["figures"][0]["legend"] == ["reference", "data"]
    assert seen["figures"][0]["symbols"] == 6
    assert sorted(seen["options"]) == ["bn1", "bn2", "bn3"]
    assert seen["rows"] == 3 + 2


def test_findings_come_first_with_what_to_do(page: Path, examination: Examination) -> None:
    text = page.read_text()
    assert {"stale", "shifted"} <= {finding.code for finding in examination.findings}
    assert f"<h1>{examination.verdict}</h1>" in text
    assert text.count("<em>What to do:</em>") == len(examination.findings)
    assert "zoo:&lt;b&gt;mine&lt;/b&gt; · 3 batch norm layers · 80 examples of the reference" in text
    assert "<b>mine" not in text.split("</main>")[0]


def test_without_data_there_are_no_figures(tmp_path: Path) -> None:
    found = examine(net())
    text = write_examination(tmp_path / "e.html", found, title="Mine").read_text()
    assert "<title>Mine</title>" in text
    assert "<figure" not in text.split("</main>")[0]
    with pytest.raises(ReportError, match="nothing to draw"):
        fit_by_layer(found)
