"""The HTML pages, rendered from the Jinja templates in assets/.

A page is one file that needs no network: the chart libraries, the specifications of all charts as JSON, and a small
script that draws them. Jinja escapes everything that is shown. In addition, the content security policy allows only
these two scripts, by their hashes, and no network access, so that a name in the results cannot run as a script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from .figure import Figure
from .frames import display_name
from .save import vega_lite_spec
from .style import DARK, LIGHT, SANS, THEMES

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src"


def render_page(template: str, title: str, figures: Sequence[Figure], **context: Any) -> bytes:
    """A page from a template that shows `figures` and the values of `context`."""
    library = chart_library()
    script = _asset("page.js")
    context |= {
        "policy": f"{POLICY} {_hash(library)} {_hash(script)}",
        "title": title,
        # S704: style, library and script are files of this package and of vl-convert; everything else is escaped.
        "style": Markup(_css()),  # noqa: S704
        "figures": figures,
        "data": {"figures": [_variants(figure) for figure in figures], "configs": _chart_configs()},
        "library": Markup(library),  # noqa: S704
        "script": Markup(script),  # noqa: S704
    }
    return _environment().get_template(template).render(context).encode()


@cache
def chart_library() -> str:
    """Vega-Lite and its dependencies as one script; cached, because bundling takes more than a second."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("predbn.report", "assets"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.filters |= {"display_name": display_name, "card_text": _card_text}
    environment.tests["nested"] = _is_nested
    return environment


def _is_nested(value: Any) -> bool:
    """Whether a value of a run card is a list with more lists or mappings in it."""
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value)


def _card_text(value: Any) -> str:
    """A value of a run card in one line."""
    if isinstance(value, list | tuple):
        return ", ".join(_card_text(item) for item in value) or "–"
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return str(value)


def _asset(name: str) -> str:
    return (files("predbn.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _css() -> str:
    themes = f":root {{ {LIGHT.css()} --sans: {SANS}; }}\n"
    themes += f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK.css()} }} }}\n"
    return themes + _asset("page.css")


def _chart_configs() -> dict[str, Any]:
    """The themes of the charts in a page, which have the background of the page."""
    return {name: {**theme.config(), "background": None, "padding": 4} for name, theme in THEMES.items()}


def _variants(figure: Figure) -> list[dict[str, Any]]:
    """The charts of a figure without titles and legends: the page has its own, which fit on a phone."""
    variants = []
    for choice, variant in figure.variants.items():
        spec = _without_legends(vega_lite_spec(variant.chart, None))
        spec.pop("title", None)
        legend = [[style.series, style.colour, style.area] for style in variant.styles]
        variants.append({"choice": choice, "legend": legend, "spec": spec})
    return variants


def _without_legends(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {
            key: None if key == "legend" else value if key == "datasets" else _without_legends(value)
            for key, value in spec.items()
        }
    return [_without_legends(item) for item in spec] if isinstance(spec, list) else spec
