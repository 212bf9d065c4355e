"""The page of an examination as a reader opens it."""

from pathlib import Path

import pytest

import predbn
from predbn.common import ReportError
from predbn.diagnostics import Examination, examine
from predbn.report import write_examination
from predbn.report.figures import channels_of_layer, fit_by_layer, shift_by_layer
from predbn.report.save import vega_lite_spec

from ..norm.models import images, net
from . import browser
from .conftest import values_of
from .test_results_page import COUNT, needs_browser

USE = """
const select = document.querySelector("select");
return { figures, overflow, options: [...select.options].map((option) => option.value),
  rows: document.querySelectorAll("tbody tr").length };
"""


@pytest.fixture(scope="module")
def broken() -> Examination:
    """Three layers with statistics that fit nothing, and data that has shifted."""
    return examine(net(), images(80, seed=1), images(80, seed=2, shift=1.5))


@pytest.fixture(scope="module")
def healthy() -> Examination:
    """The same data, with statistics that fit the reference."""
    model = predbn.recompute(net(), [images(80, seed=1)])
    return examine(model, images(80, seed=1), images(80, seed=2, shift=1.5))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, healthy: Examination) -> Path:
    path = tmp_path_factory.mktemp("examination") / "doctor.html"
    return write_examination(path, healthy, {"model": "zoo:<b>mine</b>", "corruption": "fog", "severity": 3})


@needs_browser
@pytest.mark.parametrize(("width", "flags"), [(1000, ()), (380, (browser.DARK,))])
def test_it_is_drawn_quietly(page: Path, width: int, flags: tuple[str, ...]) -> None:
    seen = browser.ask(page, COUNT + USE, width=width, flags=flags)
    assert seen["complaints"] == []
    assert seen["fetched"] == []
    assert seen["overflow"] <= 0
    titles = ["How well the stored statistics fit", "How far the data has shifted", "Channel by channel"]
    assert [figure["title"] for figure in seen["figures"]] == titles
    assert [figure["legend"] for figure in seen["figures"]] == [
        ["reference"],
        ["stored statistics", "statistics of the batch"],
        ["reference", "data"],
    ]
    assert [figure["symbols"] for figure in seen["figures"][:2]] == [3, 6]
    assert sorted(seen["options"]) == ["bn1", "bn2", "bn3"]
    assert seen["rows"] == 3 + 2


def test_findings_come_first_with_what_to_do(page: Path, healthy: Examination) -> None:
    text = page.read_text()
    assert "shifted" in {finding.code for finding in healthy.findings}
    assert f"<h1>{healthy.verdict}</h1>" in text
    assert text.count("<em>What to do:</em>") == len(healthy.findings)
    assert "zoo:&lt;b&gt;mine&lt;/b&gt; · 3 batch norm layers · 80 examples of the reference" in text
    assert "fog 3" in text
    assert "<b>mine" not in text.split("</main>")[0]


def test_the_page_of_a_broken_network_names_no_strategy(tmp_path: Path, broken: Examination) -> None:
    assert broken.is_broken
    text = write_examination(tmp_path / "e.html", broken).read_text().split("</main>")[0]
    assert "predbn.recompute(model, loader)" in text
    assert "predbn.adapt" not in text
    spec = vega_lite_spec(shift_by_layer(broken).chart)
    assert {row["series"] for row in values_of(spec, spec["layer"][-1])} == {"statistics of the batch"}


def test_a_dot_for_every_layer_and_series(healthy: Examination) -> None:
    by_layer = {row.layer: row for row in healthy.layers}
    fit, shift = (vega_lite_spec(figure(healthy).chart) for figure in (fit_by_layer, shift_by_layer))
    drawn = values_of(fit, fit["layer"][-1])
    assert [(row["layer"], row["distance"]) for row in drawn] == [
        (name, pytest.approx(by_layer[name].fit, rel=1e-3)) for name in ("bn1", "bn2", "bn3")
    ]
    drawn = values_of(shift, shift["layer"][-1])
    for row in drawn:
        expected = by_layer[row["layer"]]
        is_stored = row["series"] == "stored statistics"
        assert row["distance"] == pytest.approx(expected.shift if is_stored else expected.shift_recomputed, rel=1e-3)
    assert len(drawn) == 6
    channels = vega_lite_spec(channels_of_layer(healthy, "bn2").chart)
    assert len(values_of(channels, channels["layer"][-1])) == 2 * 8


def test_without_data_there_are_no_figures(tmp_path: Path) -> None:
    examination = examine(net())
    text = write_examination(tmp_path / "e.html", examination).read_text()
    assert "<figure" not in text.split("</main>")[0]
    with pytest.raises(ReportError, match="nothing to draw"):
        fit_by_layer(examination)
