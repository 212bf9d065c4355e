"""The report: one HTML file with everything in it, that asks nothing of the network.

The page holds the Vega libraries once, the specifications of all its figures as JSON, and a small script of its own.
Its content security policy lets only these two scripts run, by their hash, and nothing be fetched: a name in the
results can therefore be shown, but never act.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd
import vl_convert

from predbn.report.card import card_html, find
from predbn.report.frames import CLEAN, KEYS, checked, main_setting, settings
from predbn.report.headline import headline
from predbn.report.looks import looks
from predbn.report.panels import Panel, panels
from predbn.report.save import specification, store
from predbn.report.tables import by_severity, by_split, table_html
from predbn.report.theme import DARK, LIGHT, SANS, THEMES

__all__ = ["write"]

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src"
TITLE = "Prediction-time batch normalisation under shift"


def write(
    path: str | Path,
    frame: pd.DataFrame,
    card: Mapping[str, Any],
    *,
    reliability: pd.DataFrame | None = None,
    title: str | None = None,
) -> Path:
    """Write the report of a run as one self-contained HTML file, whole or not at all."""
    results = checked(frame)
    drawn = panels(frame, reliability)
    library, script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"), _asset("page.js")
    found, chosen = headline(frame), main_setting(settings(results))
    page = Template(_asset("page.html")).substitute(
        policy=f"{POLICY} {_hash(library)} {_hash(script)}",
        title=escape(title or TITLE),
        style=_style(),
        first=escape(found[0]),
        findings="".join(f"<li>{escape(sentence)}</li>" for sentence in found[1:]),
        facts=" · ".join(map(escape, _facts(results, card, reliability))),
        legend_note=_legend_note(results),
        figures="\n".join(_figure(number, panel, chosen) for number, panel in enumerate(drawn)),
        summary=_tables(results, "severity"),
        splits=_tables(results, "split"),
        split_count=f"{sum(len(by_split(part)) for part in settings(results).values()):,}",
        card=card_html(card),
        data=_json({"figures": [_variants(panel) for panel in drawn], "configs": _configs()}),
        library=library,
        script=script,
    )
    return store(Path(path), page.encode())


def _asset(name: str) -> str:
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
    return themes + _asset("page.css")


def _configs() -> dict[str, Any]:
    """The themes for charts within the page, whose background shows through."""
    return {name: {**theme.config(), "background": None, "padding": 4} for name, theme in THEMES.items()}


def _facts(results: pd.DataFrame, card: Mapping[str, Any], rel: pd.DataFrame | None) -> list[str]:
    """What the results rest on, in a line."""
    shifted = results[results["corruption"] != CLEAN]
    sizes = sorted(set(results["batch_size"]))
    corruptions, severities = shifted["corruption"].nunique(), shifted["severity"].nunique()
    models = sorted(set(results["model"]))
    images = _images(card, rel)
    return [
        *([f"{images:,} images a split"] if images else []),
        *(
            [f"{_count(corruptions, 'corruption')} × {_count(severities, 'severity', 'severities')}"]
            if corruptions
            else []
        ),
        f"batch size {', '.join(map(str, sizes))}",
        models[0] if len(models) == 1 else f"{len(models)} models",
    ]


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _images(card: Mapping[str, Any], rel: pd.DataFrame | None) -> int | None:
    """How many images a split has: counted in the reliability bins, or else as the run card has it."""
    if rel is not None and not rel.empty:
        return int(rel.groupby(list(KEYS))["count"].sum().max())
    stated = find(card, "images")
    return stated if isinstance(stated, int) else None


def _legend_note(results: pd.DataFrame) -> str:
    hollow = any(look.baseline for look in looks(results))
    return "Hollow boxes and dashed lines are the <code>train</code> baseline." if hollow else ""


def _figure(number: int, panel: Panel, chosen: str) -> str:
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


def _tables(results: pd.DataFrame, by: str) -> str:
    tables = []
    for setting, part in settings(results).items():
        where = f", {setting}" if setting else ""
        if by == "severity":
            tables.append(table_html(by_severity(part), f"Means over the corruptions{where}"))
        else:
            tables.append(table_html(by_split(part), f"Every split{where}"))
    return "\n".join(tables)
