"""Parts of the pages: escaped text, run cards, tables, menus."""

from __future__ import annotations

from types import SimpleNamespace

from predbn.paper import Verdict
from predbn.report.figure import Figure, FigureVariant
from predbn.report.tables import Column, Table
from predbn.report.templates import _environment, render_page


def macro(name, *arguments):
    return str(getattr(_environment().get_template("macros.html").module, name)(*arguments))


def test_nested_values_of_a_card_are_printed_readably_and_escaped():
    text = macro(
        "card",
        {"batch_order": "a<b", "n": 10_000, "on": True, "none": None, "list": [1, 2], "deep": {"x": [{"y": 1}]}},
    )
    assert "<dt>batch order</dt><dd>a&lt;b</dd>" in text
    assert "<dd>10,000</dd>" in text
    assert "<dd>yes</dd>" in text
    assert "<dd>–</dd>" in text
    assert "<dd>1, 2</dd>" in text
    assert "<ol><li><dl><div><dt>y</dt><dd>1</dd></div></dl></li></ol>" in text
    assert macro("card", {}) == "–"
    like_methods = macro("card", {"items": 3, "keys": {}})
    assert like_methods == "<dl><div><dt>items</dt><dd>3</dd></div><div><dt>keys</dt><dd>–</dd></div></dl>"


def test_headings_are_buttons_and_cells_are_escaped():
    numbers = Column("accuracy, %", ["90.1"], [90.123], [(88, 92)], ["88.0–92.0"], shown="wide")
    table = Table("All <i>", [Column("series", ["<b> · train"]), numbers])
    text = macro("table", table)
    heading = '<th scope="col" aria-sort="none" class="wide number"><button type="button">accuracy, %</button></th>'
    assert heading in text
    assert '<tr><td class="any">&lt;b&gt; · train</td>' in text
    assert '<td class="wide number" data-value="90.123">90.1<small>88.0–92.0</small></td></tr>' in text
    assert '<label class="more wide">' in text
    assert 'download="all-i.csv" href="data:text/csv' in text
    assert "<b>" not in text
    assert "<i>" not in text


def test_a_choice_with_one_option_has_no_menu():
    variants = {("ECE", option): FigureVariant(None) for option in ("a", "<b>")}
    text = macro("figure", 3, Figure("name", "Title <i>", "Caption", ("metric", "layer"), variants))
    assert text.startswith('<figure data-figure="3"><h2>Title &lt;i&gt;</h2><p>Caption</p>')
    assert '<label>layer <select data-index="1"><option value="a">a</option>' in text
    assert '<option value="&lt;b&gt;">&lt;b&gt;</option>' in text
    assert text.count("<select") == 1


def test_a_gallery_escapes_what_it_shows_and_numbers_its_figures():
    figures = [Figure(name, name, "", ()) for name in ("a", "b")]
    experiment = SimpleNamespace(id="X1", title="<i>", figure="figure 1")
    claim = SimpleNamespace(id="X1.1", statement="a < b.", is_of_paper=True)
    measurement = SimpleNamespace(what="x", value="+1", bounds="0 to 2", required="above 0", verdict=Verdict.HOLDS)
    findings = [
        SimpleNamespace(claim=claim, verdict=Verdict.HOLDS, why="", measurements=[measurement]),
        SimpleNamespace(claim=claim, verdict=Verdict.UNMEASURED, why="<b>", measurements=[]),
    ]
    sections = [(experiment, findings, figures[:1]), (experiment, [], figures[1:])]
    context = {"summary": "<em>", "note": "", "sections": sections, "cards": {}}
    page = render_page("gallery.html", "<title>", figures, **context).decode()
    assert "<title>&lt;title&gt;</title>" in page
    assert "<h1>&lt;em&gt;</h1>" in page
    assert "<h2>X1: &lt;i&gt;</h2>" in page
    assert "a &lt; b. <strong>holds</strong>.<details>" in page
    assert '<td class="number">0 to 2</td><td>above 0</td><td>holds</td>' in page
    assert "<strong>not measured</strong>: &lt;b&gt;.</li>" in page
    assert page.index('data-figure="0"') < page.index('data-figure="1"')
