"""Parts of the pages: escaped text, run cards, tables, menus."""

from types import SimpleNamespace

from predbn.paper.claims import Verdict
from predbn.report.figure import Figure
from predbn.report.templates import _environment, render_page


def macro(name, *arguments):
    return str(getattr(_environment().get_template("macros.html").module, name)(*arguments))


def test_nested_values_of_a_card_are_printed_readably_and_escaped():
    text = macro(
        "card", {"batch_order": "a<b", "n": 10_000, "on": True, "none": None, "list": [1, 2], "deep": {"x": [{"y": 1}]}}
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
