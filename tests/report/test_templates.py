"""Parts of the pages: escaped text, run cards, tables, menus."""

from __future__ import annotations

from predbn.report.figure import Figure, FigureVariant
from predbn.report.tables import Column, Table
from predbn.report.templates import _macros, card_html, figure_html, render_page


def test_nested_values_of_a_card_are_printed_readably_and_escaped():
    text = card_html(
        {"batch_order": "a<b", "n": 10_000, "on": True, "none": None, "list": [1, 2], "deep": {"x": [{"y": 1}]}}
    )
    assert "<dt>batch order</dt><dd>a&lt;b</dd>" in text
    assert "<dd>10,000</dd>" in text
    assert "<dd>yes</dd>" in text
    assert "<dd>–</dd>" in text
    assert "<dd>1, 2</dd>" in text
    assert "<ol><li><dl><div><dt>y</dt><dd>1</dd></div></dl></li></ol>" in text
    assert card_html({}) == "–"


def test_the_names_of_a_mapping_are_not_mistaken_for_its_methods():
    assert card_html({"items": 3, "keys": {}}) == (
        "<dl><div><dt>items</dt><dd>3</dd></div><div><dt>keys</dt><dd>–</dd></div></dl>"
    )


def test_headings_are_buttons_and_cells_are_escaped():
    table = Table("All <i>", [Column("series", ["<b> · train"], is_number=False), Column("accuracy, %", ["90.1"])])
    text = str(_macros().table(table))
    assert '<th scope="col" aria-sort="none" class="number"><button type="button">accuracy, %</button></th>' in text
    assert '<tr><td>&lt;b&gt; · train</td><td class="number">90.1</td></tr>' in text
    assert "<b>" not in text
    assert "<i>" not in text


def test_a_choice_with_one_option_has_no_menu():
    variants = {("ECE", option): FigureVariant(None) for option in ("a", "<b>")}
    text = figure_html(3, Figure("name", "Title <i>", "Caption", ("metric", "layer"), variants))
    assert text.startswith('<figure data-figure="3"><h2>Title &lt;i&gt;</h2><p>Caption</p>')
    assert '<label>layer <select data-index="1"><option value="a">a</option>' in text
    assert '<option value="&lt;b&gt;">&lt;b&gt;</option>' in text
    assert text.count("<select") == 1


def test_the_parts_of_a_gallery_are_html_and_its_title_is_text():
    parts = {"first": "<em>first</em>", "note": "", "sections": "<section>one</section>", "card": "–"}
    page = render_page("gallery.html", "<title>", [], **parts).decode()
    assert "<h1><em>first</em></h1>" in page
    assert "<section>one</section>" in page
    assert "<title>&lt;title&gt;</title>" in page
