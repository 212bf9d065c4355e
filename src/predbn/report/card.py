"""The run card as HTML: nested definitions, whatever is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .frames import readable

__all__ = ["card_html", "find"]


def card_html(card: Mapping[str, Any]) -> str:
    """A run card as nested definition lists, every text escaped."""
    entries = "".join(
        f"<div><dt>{escape(readable(str(key)))}</dt><dd>{_value(value)}</dd></div>" for key, value in card.items()
    )
    return f"<dl>{entries}</dl>" if entries else "–"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return card_html(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if any(isinstance(item, Mapping | list | tuple) for item in value):
            return "<ol>" + "".join(f"<li>{_value(item)}</li>" for item in value) + "</ol>"
        return ", ".join(_value(item) for item in value) or "–"
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return escape(str(value))


def find(card: Mapping[str, Any], key: str) -> Any:
    """The first value under a key at any depth, or None."""
    if key in card:
        return card[key]
    for value in card.values():
        if isinstance(value, Mapping) and (found := find(value, key)) is not None:
            return found
    return None
