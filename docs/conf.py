"""Settings of the site that `make docs` builds: Sphinx with furo, Markdown and the notebook through myst-nb.

The build needs no network, so there is no intersphinx. Pages that are read on their own, in a clone, and pages of the
site are the same files. An API page holds examples; the tests run them, as they run those of every guide.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import predbn

os.environ.setdefault("KERAS_BACKEND", "torch")  # torch is there

project = "predbn"
author = "The predbn authors"
project_copyright = author
release = version = predbn.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "predbn"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

html_math_renderer = "mathml"

myst_enable_extensions = ["html_image", "dollarmath"]
myst_fence_as_directive = ["math"]  # ```math, as code hosts write equations
myst_heading_anchors = 4
nb_execution_mode = "off"  # the notebook is stored with its outputs, and run by the tests

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

PAGES = ["predbn", "common", "norm", "gpu", "onnx", "keras", "metrics", "shifts", "data", "models", "methods"]
PAGES += ["evaluation", "diagnostics", "recommendation", "training", "serving", "report", "paper"]
"""The pages of the API, in the order of CONTRIBUTING's map."""


def document_once(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Document what several folders offer on the first of their pages only."""
    page = app.env.docname.rpartition("/")[2]
    if what != "module" or page not in PAGES:
        return None
    before = [
        import_module("predbn" if other == "predbn" else f"predbn.{other}") for other in PAGES[: PAGES.index(page)]
    ]
    return any(name in module.__all__ and getattr(module, name) is obj for module in before) or None


def write_as_rst(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `names`, equations and two-column tables of arguments; write them as RST."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = "\n\n".join(map(_paragraph_as_rst, paragraphs)).split("\n")


def _paragraph_as_rst(paragraph: str) -> str:
    first, *others = paragraph.split("\n")
    if re.match(r"(-|\d+\.) ", first):
        return _escape(paragraph)
    if re.match(r"`?\w+`?  +\S", first):  # a table of arguments, or of `attributes`
        return "\n".join(map(_entry_as_rst, re.sub(r"\n +", " ", paragraph).split("\n")))
    if any(line.startswith(" ") for line in (first, *others)):
        return "::\n\n" + "\n".join(f"    {line}" for line in (first, *others))
    return _escape(paragraph)


def _entry_as_rst(line: str) -> str:
    name, text = re.split(" +", line, maxsplit=1)
    return f"- `{name}`: {_escape(text)}" if name.startswith("`") else f":param {name}: {_escape(text)}"


def _escape(text: str) -> str:
    """Bars, stars and underscores are no markup, except in `names`, which letters may follow."""
    plain_and_names = re.split(r"``(.+?)``|`([^`]+)`", text)
    parts = [re.sub(r"([|*_])", r"\\\1", plain) for plain in plain_and_names[::3]]
    names = [double or single for double, single in zip(plain_and_names[1::3], plain_and_names[2::3], strict=True)]
    return parts[0] + "".join(f"\\ ``{name}``\\ {part}" for name, part in zip(names, parts[1:], strict=True))


def write_inline_math(writer: Any, node: Any) -> None:
    writer.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def write_math_block(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="math">{_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def _mathml(equation: str, display: str) -> str:
    markup = convert(equation, display=display)
    if re.search(r"\\|&#x00026;", markup):  # what latex2mathml does not know, it leaves as it is
        raise ValueError(f"latex2mathml does not understand all of {equation}")
    return markup


def drop_back_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Pages of source code link back to where a name is defined, and not to where it is documented."""
    if page.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app: Sphinx) -> None:
    # Equations are MathML, which browsers draw by themselves: MathJax would be loaded from elsewhere.
    app.add_html_math_renderer("mathml", (write_inline_math, None), (write_math_block, None))
    app.connect("html-page-context", drop_back_links)
    app.connect("autodoc-skip-member", document_once)
    app.connect("autodoc-process-docstring", write_as_rst)
