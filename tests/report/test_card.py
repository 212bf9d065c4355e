"""The run card."""

from __future__ import annotations

from predbn.report.card import card_html, find


def test_nested_values_are_printed_readably_and_escaped():
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


def test_find_looks_at_any_depth():
    assert find({"a": {"b": {"images": 7}}}, "images") == 7
    assert find({"a": 1}, "images") is None
