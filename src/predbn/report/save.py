"""Save a chart as a file; figures for print and for the web come from the same specification."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from predbn.common import ReportError, write_bytes

from .style import LIGHT, Theme

_CONVERTERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, scale=2.0),
    ".svg": lambda spec: _compress_svg(vl_convert.vegalite_to_svg(spec)).encode(),
    ".pdf": vl_convert.vegalite_to_pdf,
    ".json": lambda spec: json.dumps(spec, indent=1, ensure_ascii=False).encode(),
    ".html": lambda spec: vl_convert.vegalite_to_html(spec, bundle=True, renderer="svg").encode(),
}


def save(chart: alt.TopLevelMixin, path: str | Path, *, theme: Theme = LIGHT) -> Path:
    """Write a chart as .png, .svg, .pdf, .json (its Vega-Lite specification) or .html (a page of its own, offline)."""
    path = Path(path)
    return write_file(path, _CONVERTERS[check_suffix(path)](vega_lite_spec(chart, theme)))


def vega_lite_spec(chart: alt.TopLevelMixin, theme: Theme | None = LIGHT) -> dict[str, Any]:
    """The Vega-Lite specification of a chart in the colours of a theme; the chart's own configuration wins.

    Without a theme it has no configuration: a page adds that of the reader's theme.
    """
    with alt.theme.enable("none"):
        spec: dict[str, Any] = chart.to_dict(format="vega-lite", validate=False)
    chart_config = spec.pop("config", {})
    if theme is None:
        return spec
    config = theme.config()
    for name, value in chart_config.items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    return {**spec, "config": config}


def check_suffix(path: Path) -> str:
    """The suffix of a file name in lower case; raises if charts cannot be saved in this format."""
    suffix = path.suffix.lower()
    if suffix not in _CONVERTERS:
        raise ReportError(f"Expected a file name that ends with {', '.join(_CONVERTERS)}, but got {path.name!r}.")
    return suffix


def write_file(path: Path, content: bytes) -> Path:
    """Write a file atomically, creating its folder if needed, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
    return path


def _compress_svg(svg: str) -> str:
    """The same picture in half the size: hundredths of a pixel, and no labels for screen pointers."""
    return re.sub(r"<[^>]+>", _compress_tag, svg)


def _compress_tag(match: re.Match[str]) -> str:
    tag = re.sub(r' (?:aria-[a-z]+|role|class|pointer-events)="[^"]*"', "", match[0])
    return re.sub(r"-?\d+\.\d{3,}(?:e-?\d+)?", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), tag)
