"""The report as a reader opens it: whole, quiet, drawn, sortable, without network."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from predbn import report
from predbn.evaluation import Results
from predbn.report.results_page import results_figures
from predbn.report.style import DARK as DARK_THEME
from predbn.report.style import LIGHT as LIGHT_THEME
from predbn.report.templates import chart_library

from . import browser

needs_browser = pytest.mark.skipif(
    browser.find_chromium() is None, reason="no chromium, chromium-browser or google-chrome on this machine"
)

COUNT = """
const marks = (figure, kind, shape) => figure.querySelectorAll(`.chart g.mark-${kind}.role-mark ${shape}`).length;
const figures = [...document.querySelectorAll("figure")].map((figure) => ({
  title: figure.querySelector("h2").textContent,
  rects: marks(figure, "rect", "path"),
  symbols: marks(figure, "symbol", "path"),
  lines: marks(figure, "line", "path"),
  texts: marks(figure, "text", "text"),
  wide: figure.querySelector("svg").getBoundingClientRect().width,
  legend: [...figure.querySelectorAll(".legend li")].map((item) => item.textContent),
}));
const overflow = document.documentElement.scrollWidth - innerWidth;
const label = document.querySelector("svg .role-axis-label text");
const colours = [getComputedStyle(document.body).backgroundColor, label.getAttribute("fill")];
"""

USE = """
const table = document.querySelector("table.sortable");
const column = () => [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[2].textContent));
const head = table.tHead.rows[0].cells[2];
head.querySelector("button").click();
const ascending = [head.getAttribute("aria-sort"), column()];
head.querySelector("button").click();
const descending = [head.getAttribute("aria-sort"), column()];
table.tHead.rows[0].cells[0].querySelector("button").click();
const named = [head.getAttribute("aria-sort"), [...table.tBodies[0].rows].map((row) => row.cells[0].textContent)];

const gain = [...document.querySelectorAll("figure")].find((figure) => figure.querySelector("select"));
const numbers = () => [...gain.querySelectorAll(".chart .mark-text.role-mark text")].map((text) => text.textContent);
const before = numbers();
const select = gain.querySelector("select");
select.value = "ECE";
select.dispatchEvent(new Event("change"));
await wait(1000);
const after = numbers();

const cell = document.querySelector("figure .chart .mark-path.role-mark path, figure .chart g.voronoi path");
const box = cell.getBoundingClientRect();
for (const kind of ["pointerover", "pointermove"])
  cell.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: box.x + 1, clientY: box.y + 1 }));
await wait(500);
const tip = document.getElementById("vg-tooltip-element")?.innerText ?? "";

const figure = document.querySelector("figure[data-figure]");
const boxes = () => figure.querySelectorAll(".chart g.mark-rect.role-mark path").length;
const press = async (index) => {
  figure.querySelectorAll(".legend button")[index].click();
  await wait(1000);
  return [figure.querySelectorAll(".legend button")[index].getAttribute("aria-pressed"), boxes()];
};
const toggled = [["true", boxes()], await press(1), await press(1)];
const sorting = { ascending, descending, named };
return { figures, overflow, colours, width: innerWidth, before, after, tip, toggled, ...sorting };
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, results: tuple[pd.DataFrame, pd.DataFrame]) -> Path:
    card = {"predbn": "0.1.0", "device": {"kind": "cpu"}, "data": {"images": 10_000}}
    return report.write_results(tmp_path_factory.mktemp("report") / "report.html", Results(*results, card=card))


@pytest.fixture(scope="module")
def used(page: Path) -> dict[str, Any]:
    return browser.ask(page, COUNT + USE)


@needs_browser
def test_it_opens_without_a_complaint_and_without_network(used):
    assert "failed" not in used
    assert used["complaints"] == []
    assert used["fetched"] == []


@needs_browser
def test_every_chart_is_drawn(used):
    drawn = {figure["title"]: figure for figure in used["figures"]}
    series, severities, splits = 6, 6, 96
    for metric in ("Accuracy", "Brier score", "ECE"):
        assert drawn[metric]["rects"] == 2 * series * severities
        means = series * (severities - 1)  # clean data is one split of one network: no interval
        assert drawn[metric]["symbols"] == series * splits + means
        assert drawn[metric]["legend"][:2] == ["vanilla · train", "vanilla · batch"]
    gain = drawn["Where it helps, and where it does not"]
    assert (gain["rects"], gain["texts"], gain["legend"]) == (splits, splits, [])
    assert drawn["Reliability"]["lines"] == severities * (series + 1)


@needs_browser
def test_the_table_sorts_both_ways_and_by_name(used):
    (up, rising), (down, falling) = used["ascending"], used["descending"]
    assert (up, down) == ("ascending", "descending")
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert len(rising) == 6
    unsorted, names = used["named"]
    assert unsorted == "none"
    assert names == sorted(names)


@needs_browser
def test_a_name_in_the_legend_hides_its_series_and_shows_it_again(used):
    (_, all_boxes), (hidden, fewer), (shown, again) = used["toggled"]
    assert (hidden, shown) == ("false", "true")
    assert fewer == all_boxes * 5 // 6
    assert again == all_boxes


TABLES = """
document.querySelectorAll("details").forEach((details) => (details.open = true));
await wait(100);
const tables = () => [...document.querySelectorAll(".scroll")].map((box) => ({
  spare: box.clientWidth - box.scrollWidth,
  columns: [...box.querySelectorAll("th")].filter((head) => head.offsetParent).map((head) => head.textContent),
  intervals: [...box.querySelectorAll("small")].filter((note) => note.offsetParent).length,
}));
const first = tables();
document.querySelectorAll(".more input").forEach((box) => box.click());
await wait(100);
return { first, full: tables() };
"""


@needs_browser
@pytest.mark.parametrize("width", [1280, 400])
def test_tables_fit_and_the_rest_is_shown_on_demand(page, width):
    seen = browser.ask(page, TABLES, width=width)
    assert all(table["spare"] >= 0 for table in seen["first"])
    accuracy, splits = seen["first"][0], seen["first"][-1]
    assert accuracy["columns"] == ["strategy", "clean", "1", "2", "3", "4", "5"]
    assert (accuracy["intervals"] > 0) == (width == 1280)
    assert splits["columns"][:4] == ["corruption", "severity", "strategy", "accuracy, %"]
    assert ("Brier score" in splits["columns"]) == (width == 1280)
    assert seen["full"][0]["intervals"] == 6 * 5
    assert seen["full"][-1]["columns"][-2:] == ["Brier score", "ECE"]


@needs_browser
def test_a_choice_redraws_the_heat_map(used):
    assert len(used["after"]) == len(used["before"]) == 96
    assert used["after"] != used["before"]


@needs_browser
def test_pointing_at_a_dot_names_the_corruption(used):
    assert re.fullmatch(
        r"corruption\tclean\nseverity\tclean\nseries\tvanilla · train\naccuracy\t9\d\.\d%", used["tip"].strip()
    )


@needs_browser
def test_dark_on_a_phone(page):
    on_paper = "const onPaper = document.querySelector('.on-paper svg .role-axis-label text')?.getAttribute('fill');"
    answer = "return { figures, overflow, colours, width: innerWidth, onPaper };"
    seen = browser.ask(page, COUNT + on_paper + answer, width=380, flags=(browser.DARK,))
    assert seen["complaints"] == []
    assert seen["width"] == 380
    assert seen["overflow"] <= 0
    assert all(300 < figure["wide"] <= seen["width"] for figure in seen["figures"])
    red, green, blue = bytes.fromhex(DARK_THEME.paper[1:])
    assert seen["colours"] == [f"rgb({red}, {green}, {blue})", DARK_THEME.muted]
    assert seen["onPaper"] == LIGHT_THEME.muted  # a dark page is printed in light colours


@needs_browser
def test_the_command_of_the_readme_takes_a_picture(page, tmp_path):
    picture = tmp_path / "report.png"
    subprocess.run([sys.executable, browser.__file__, str(page), str(picture)], check=True)
    assert Image.open(picture).size == (900, 1240)


EVIL = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"


@pytest.fixture(scope="module")
def evil_page(tmp_path_factory: pytest.TempPathFactory, results: tuple[pd.DataFrame, pd.DataFrame]) -> Path:
    """A report in which every name is an attempt to run a script."""
    frame, rel = (
        part[part["corruption"].isin(["clean", "fog"])].assign(method=EVIL + part["method"], model=EVIL)
        for part in results
    )
    frame.loc[frame["corruption"] == "fog", "corruption"] = EVIL
    path = tmp_path_factory.mktemp("evil") / "report.html"
    return report.write_results(path, Results(frame, rel, card={EVIL: {EVIL: [EVIL]}}))


def test_names_are_escaped_wherever_they_are_shown(evil_page):
    text = evil_page.read_text()
    html, data = text.split('<script type="application/json" id="data">')
    data = data.split("</script>")[0]
    assert html.count("&lt;script&gt;window.ran = 1") > 50
    assert EVIL in json.dumps(json.loads(data), ensure_ascii=False)
    assert "<" not in data
    assert "<img" not in html
    assert "<script>window.ran" not in text


@needs_browser
def test_names_are_shown_and_never_run(evil_page):
    seen = browser.ask(evil_page, "return { ran: window.ran ?? 0, body: document.body.innerText };")
    assert seen["ran"] == 0
    assert seen["complaints"] == []
    assert EVIL in seen["body"]


@pytest.fixture
def few(frame: pd.DataFrame) -> pd.DataFrame:
    """One method, one metric and three splits."""
    is_few = (frame["method"] == "vanilla") & (frame["metric"] == "accuracy") & (frame["severity"].isin([0, 5]))
    return frame[is_few & frame["corruption"].isin(["clean", "fog", "snow"])]


def text_of(path: Path, frame: pd.DataFrame, card: dict[str, Any] | None = None, **tables: pd.DataFrame) -> str:
    """The report of these tables, without reliability bins."""
    results = Results(frame, pd.DataFrame(), card=card or {}, **tables)
    return report.write_results(path / "report.html", results).read_text()


def test_examples_are_shown_in_the_order_of_the_families(tmp_path, few):
    names = ["pixelate", "clean", "in_turn-all", "fog"]
    severities = [5, 0, 5, 5]
    examples = pd.DataFrame(
        {"corruption": names, "severity": severities, "png": [b"png of " + n.encode() for n in names]}
    )
    text = text_of(tmp_path, few, examples=examples)
    shown = re.findall(r'<li><img src="data:image/png;base64,([^"]+)" alt="">([^<]+)</li>', text)
    assert [(base64.b64decode(png), name) for png, name in shown] == [
        (b"png of clean", "clean"),
        (b"png of fog", "fog"),
        (b"png of pixelate", "pixelate"),
        (b"png of in_turn-all", "in_turn-all"),
    ]


def test_what_a_run_does_not_have_is_not_shown(tmp_path, few):
    text = text_of(tmp_path / "deep", few)
    assert "What the shifts look like" not in text
    assert "<h2>Reliability</h2>" not in text
    strategies = text[text.index('<dl class="note strategies">') :].split("</dl>")[0]
    assert re.findall(r"<dt><code>(\w+)</code>", strategies) == ["train", "batch"]


def test_nothing_is_left_of_a_report_that_fails(tmp_path, few):
    with pytest.raises(report.ReportError, match="it lacks value"):
        text_of(tmp_path, few.drop(columns="value"))
    assert list(tmp_path.iterdir()) == []


def test_the_page_is_small_and_says_what_it_rests_on(page):
    text = page.read_text()
    library = chart_library()
    assert text.count(library) == 1
    assert len(text.encode()) - len(library.encode()) < 1_000_000
    assert not re.search(r'(src|href)="(?!data:)', text.replace(library, ""))
    facts = ["10,000 images per split", "corruptions × severities: 19 × 5", "batch size 500", "resnet20-cifar10"]
    for fact in (*facts, "squared distance between the predicted distribution and the one-hot label"):
        assert fact in text


def test_what_differs_besides_method_and_strategy_is_a_choice(tmp_path, few):
    text = text_of(tmp_path, pd.concat([few.assign(batch_size=10), few]))
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [variant["choice"] for variant in data["figures"][0]] == [["batch size 10", ""], ["batch size 500", ""]]
    assert '<option value="batch size 10">' in text
    assert '<option value="batch size 500" selected>' in text
    assert "<h3>batch size 10</h3>" in text


def test_hits_of_streams_that_visit_images_several_times_give_intervals_over_images(tmp_path, few):
    clean = few[few["corruption"] == "clean"]
    both = pd.concat([clean, clean.assign(corruption="in_turn-2", severity=5)])
    bits = np.random.default_rng(0).random(2 * 40) < 0.5
    packed = [np.packbits(bits[: 80 if name == "in_turn-2" else 40]).tobytes() for name in both["corruption"]]
    hits = both.drop(columns=["metric", "value"]).assign(hits=packed)
    text = text_of(tmp_path, both, {"data": {"images": 40}}, hits=hits)
    assert "bootstrap interval, over the images." in text
    assert text.count("<small>") == 4


def test_the_figures_of_a_report(frame, rel):
    few = frame["corruption"] == "fog"
    charts = {figure.name: figure for figure in results_figures(Results(frame[few], rel[rel["corruption"] == "fog"]))}
    assert list(charts) == ["accuracy", "brier", "ece", "gain", "reliability"]
    assert set(charts["gain"].variants) == {
        (metric, f"{method}: batch over train", "")
        for metric in ("accuracy", "Brier score", "ECE")
        for method in ("vanilla", "temperature", "ensemble")
    }
    without_baseline = Results(frame[few & (frame["strategy"] == "batch")], pd.DataFrame())
    assert [figure.name for figure in results_figures(without_baseline)] == ["accuracy", "brier", "ece"]


def test_methods_become_a_choice_if_there_are_too_many_series_to_tell_apart(frame):
    few = frame[(frame["metric"] == "ece") & (frame["corruption"] == "fog")]
    batch = few[few["strategy"] == "batch"]
    many = pd.concat([few, *(batch.assign(strategy=name) for name in ("ema", "prior"))])
    assert list(results_figures(Results(many, pd.DataFrame()))[0].variants) == [
        ("", method) for method in ("vanilla", "temperature", "ensemble")
    ]
