"""The site of the documents builds without a warning, holds every page and every public name, and needs no network."""

import re
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import FunctionType
from urllib.parse import unquote, urlsplit

import pytest

import predbn
from tests.test_structure import FOLDERS

sphinx = pytest.importorskip("sphinx.application", reason="the extra `docs` is not installed")
pytest.importorskip("myst_nb", reason="the extra `docs` is not installed")
pytest.importorskip("furo", reason="the extra `docs` is not installed")

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built as by `make docs`; a warning fails."""
    folder = tmp_path_factory.mktemp("site")
    app = sphinx.Sphinx(
        str(DOCS), str(DOCS), str(folder), str(folder / ".doctrees"), "html", status=None, warningiserror=True
    )
    app.build()
    assert app.statuscode == 0
    return folder


class Addresses(HTMLParser):
    """What a page links to, what it loads, and the places that can be linked to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.places.add(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        is_loaded = tag in ("img", "script") or (tag == "link" and "stylesheet" in str(values.get("rel")))
        self.loaded += [str(values[key]) for key in ("src", "href") if is_loaded and values.get(key)]


def test_every_page_is_there(site):
    pages = [path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")]
    assert [page for page in pages if not (site / f"{page}.html").exists()] == []
    assert (site / "notebook.html").read_text().count("_images/") >= 2, "the notebook is stored with its figures"


def test_links_lead_somewhere_and_pages_load_nothing_from_elsewhere(site):
    found = {page: Addresses(page) for page in site.rglob("*.html")}
    wrong = []
    for page, addresses in found.items():
        for link in (*addresses.links, *addresses.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                wrong += [f"{page.name} loads {link}"] if link in addresses.loaded else []
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            is_there = target.exists() and (
                not parts.fragment or target not in found or unquote(parts.fragment) in found[target].places
            )
            wrong += [] if is_there else [f"{page.name}: {link}"]
    assert wrong == []


def test_equations_are_drawn_without_a_script(site):
    for page in DOCS.rglob("*.md"):
        built = (site / page.relative_to(DOCS).with_suffix(".html")).read_text()
        assert built.count('display="block"') == page.read_text().count("```math"), page.name


def test_every_public_name_is_in_the_reference(site):
    api = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    documented = set(re.findall(r'id="(predbn[\w.]*)"', api))
    for module in (predbn, *(import_module(f"predbn.{folder}") for folder in FOLDERS if folder != "commands")):
        missing = []
        for name in module.__all__:
            item = getattr(module, name)
            is_described = isinstance(item, type | FunctionType) and item.__module__.startswith("predbn")
            names = {f"{module.__name__}.{name}", f"predbn.{name}", f"predbn.common.{name}"}
            names.add(f"{getattr(item, '__module__', '')}.{getattr(item, '__name__', '')}")
            if is_described and not names & documented:
                missing.append(name)
        assert missing == [], module.__name__
