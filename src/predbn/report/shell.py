"""What every page is made of: the libraries once, specifications as JSON, a small script, and a policy.

The content security policy lets only the page's two scripts run, by their hash, and nothing be fetched: a name in
results can therefore be shown, but never act.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import vl_convert

from .panels import Panel
from .save import specification
from .theme import DARK, LIGHT, SANS, THEMES

__all__ = ["assemble", "asset", "figure_html", "render"]

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src"


def assemble(
    *,
    title: str,
    findings: Sequence[str],
    facts: Sequence[str],
    note: str,
    panels: Sequence[Panel],
    sections: str,
    chosen: str = "",
) -> bytes:
    """A page: findings in words, the facts they rest on, figures, and sections of HTML.

    Findings and facts are plain text; `note` and `sections` are HTML. The choices of figures start at `chosen`.
    """
    return render(
        "page.html",
        title,
        panels,
        first=escape(findings[0]),
        findings="".join(f"<li>{escape(sentence)}</li>" for sentence in findings[1:]),
        facts=" · ".join(map(escape, facts)),
        note=note,
        figures="\n".join(figure_html(number, panel, chosen) for number, panel in enumerate(panels)),
        sections=sections,
    )


def render(template: str, title: str, drawn: Sequence[Panel], **parts: str) -> bytes:
    """A page from one of the templates among the assets; `parts` are HTML, `title` is text.

    The panels are those whose places `figure_html` gave, in the order of their numbers.
    """
    library, script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"), asset("page.js")
    page = Template(asset(template)).substitute(
        policy=f"{POLICY} {_hash(library)} {_hash(script)}",
        title=escape(title),
        style=_style(),
        data=_json({"figures": [_variants(panel) for panel in drawn], "configs": _configs()}),
        library=library,
        script=script,
        **parts,
    )
    return page.encode()


def figure_html(number: int, panel: Panel, chosen: str = "") -> str:
    """One figure's place in the page, its choices starting at the setting that the headline speaks of."""
    selects = []
    for place, name in enumerate(panel.choices):
        options = list(dict.fromkeys(choice[place] for choice in panel.variants))
        if len(options) > 1:
            listed = "".join(
                f'<option value="{escape(option)}"{" selected" if option == chosen else ""}>{escape(option)}</option>'
                for option in options
            )
            selects.append(f'<label>{name} <select data-place="{place}">{listed}</select></label>')
    choices = f'<div class="choices">{"".join(selects)}</div>' if selects else ""
    return (
        f'<figure data-figure="{number}"><h2>{escape(panel.title)}</h2><p>{escape(panel.caption)}</p>'
        f'{choices}<ul class="legend"></ul><div class="chart"></div></figure>'
    )


def asset(name: str) -> str:
    """The text of a file among the assets."""
    return (files("predbn.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _json(value: Any) -> str:
    """JSON that no HTML parser can take for a tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _style() -> str:
    themes = f":root {{ {LIGHT.css()} --sans: {SANS}; }}\n"
    themes += f"@media (prefers-color-scheme: dark) {{ :root {{ {DARK.css()} }} }}\n"
    return themes + asset("page.css")


def _configs() -> dict[str, Any]:
    """The themes for charts within the page, whose background shows through."""
    return {name: {**theme.config(), "background": None, "padding": 4} for name, theme in THEMES.items()}


def _variants(panel: Panel) -> list[dict[str, Any]]:
    """The specifications of a figure without title and legends: the page sets them in its own type, to fit a phone."""
    variants = []
    for choice, variant in panel.variants.items():
        spec = _without_legends(specification(variant.chart, None))
        spec.pop("title", None)
        legend = [[look.series, look.colour, look.area] for look in variant.looks]
        variants.append({"choice": choice, "legend": legend, "spec": spec})
    return variants


def _without_legends(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {
            key: None if key == "legend" else value if key == "datasets" else _without_legends(value)
            for key, value in spec.items()
        }
    return [_without_legends(item) for item in spec] if isinstance(spec, list) else spec
