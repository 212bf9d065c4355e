"""A chart as a file: one specification gives the picture for print and the one for the web."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from predbn.common import ReportError, finish, part_of

from .theme import LIGHT, Theme

__all__ = ["save", "specification", "store", "suffix_of"]

SUFFIXES = (".png", ".svg", ".pdf", ".json", ".html")
SCALE = 2.0

Chart = alt.TopLevelMixin


def specification(chart: Chart, theme: Theme | None = LIGHT) -> dict[str, Any]:
    """The Vega-Lite specification of a chart in the colours of a theme; what the chart itself configures wins.

    Without a theme it has no configuration at all: whoever draws it brings one.
    """
    with alt.theme.enable("none"):
        spec: dict[str, Any] = chart.to_dict(format="vega-lite", validate=False)
    own = spec.pop("config", {})
    if theme is None:
        return spec
    config = theme.config()
    for name, value in own.items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    return {**spec, "config": config}


def store(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, making its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part_of(path).write_bytes(content)
    finish(path)
    return path


def suffix_of(path: Path) -> str:
    """The suffix of a picture's name, or a sentence on which there are."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ReportError(f"A figure cannot be saved as {path.name!r}: end the name with {', '.join(SUFFIXES)}.")
    return suffix


def save(chart: Chart, path: str | Path, *, theme: Theme = LIGHT) -> Path:
    """Write a chart as .png, .svg, .pdf, .json (its Vega-Lite specification) or .html (by itself, no network)."""
    path = Path(path)
    suffix = suffix_of(path)
    spec = specification(chart, theme)
    if suffix == ".png":
        return store(path, vl_convert.vegalite_to_png(spec, scale=SCALE))
    if suffix == ".pdf":
        return store(path, vl_convert.vegalite_to_pdf(spec))
    if suffix == ".svg":
        return store(path, _slim(vl_convert.vegalite_to_svg(spec)).encode())
    if suffix == ".json":
        return store(path, json.dumps(spec, indent=1, ensure_ascii=False).encode())
    return store(path, vl_convert.vegalite_to_html(spec, bundle=True, renderer="svg").encode())


def _slim(svg: str) -> str:
    """Half as large, and the same picture: hundredths of a pixel, and no labels for pointers, which a file has not."""
    return re.sub(r"<[^>]+>", _slim_tag, svg)


def _slim_tag(found: re.Match[str]) -> str:
    tag = re.sub(r' (?:aria-[a-z]+|role|class|pointer-events)="[^"]*"', "", found[0])
    return re.sub(r"-?\d+\.\d{3,}(?:e-?\d+)?", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), tag)
