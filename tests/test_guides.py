"""The code on the pages of the site runs as written: the `python` blocks of a page in order, and `predbn` commands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import predbn
from predbn import cli

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if page.name not in ("own-shift.md", "auto.md") and "```python" in page.read_text()
]
"""All pages with code but the one that needs the folders of examples/digits.py: test_own_shift_guide.py."""
FRAGMENT = "# A fragment"
"""How a block begins that cannot run as it stands, and says what it needs."""
BLOCK = re.compile(r"^```(?P<language>python|sh)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the code of each block, at the line at which it stands on the page."""
    text = page.read_text()
    return [
        (block["language"], "\n" * text[: block.start("code")].count("\n") + block["code"])
        for block in BLOCK.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(predbn.Strategy, "_by_name", dict(predbn.Strategy._by_name))  # a page may register its own
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, code in blocks(page):
        if language == "python" and not code.lstrip().startswith(FRAGMENT):
            exec(compile(code, str(page), "exec"), names)
        commands = re.findall(r"^predbn .*", code.replace("\\\n", " "), re.MULTILINE) if language == "sh" else []
        for command in commands:
            done = CliRunner().invoke(cli.app, shlex.split(command)[1:])
            assert done.exit_code == 0, f"{command}\n{done.output}"


def test_only_what_needs_data_or_a_server_is_a_fragment():
    fragments = {page.stem for page in PAGES for _, code in blocks(page) if code.lstrip().startswith(FRAGMENT)}
    assert fragments == {"criteo", "imagenet", "serving"}


def test_every_public_name_has_an_example():
    text = "".join(code for _, code in blocks(DOCS / "api" / "predbn.md"))
    assert [name for name in predbn.__all__ if not re.search(rf"predbn\.{name}\b", text)] == []


def test_every_page_of_the_api_has_an_example():
    assert [page.name for page in sorted(DOCS.glob("api/*.md")) if page.stem != "index" and not blocks(page)] == []
