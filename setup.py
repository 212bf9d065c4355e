"""Everything about the package is in pyproject.toml; this only makes the text that a package index shows of README.md.

An index knows nothing of the other files of the repository, so links to them and pictures have to be absolute. Where
the repository can be read is said in one place, `[tool.index-readme]` in pyproject.toml. As long as that is empty,
pictures are left out, and links to files are their text.
"""

import re
from pathlib import Path

from setuptools import setup

try:
    import tomllib
except ImportError:  # Python 3.10
    from setuptools.compat.py310 import tomllib

ROOT = Path(__file__).resolve().parent


def index_readme(text: str, page: str, picture: str) -> str:
    """README.md with absolute links; `page` and `picture` are addresses with {path} in them, or empty."""

    def to_link(match: re.Match[str]) -> str:
        is_page = page and not match["path"].startswith("#")
        return f"[{match['text']}]({page.format(path=match['path'])})" if is_page else match["text"]

    def to_picture(match: re.Match[str]) -> str:
        path = match["html"] or match["markdown"]
        return match[0].replace(path, picture.format(path=path)) if picture else ""

    relative = r"(?!https?:)"
    picture_tag = rf'<img [^>]*src="{relative}(?P<html>[^"]+)"[^>]*>|!\[[^\]]*\]\({relative}(?P<markdown>[^)]+)\)'
    text = re.sub(picture_tag, to_picture, text)
    return re.sub(rf"(?<!!)\[(?P<text>[^\]]+)\]\({relative}(?P<path>[^)]+)\)", to_link, text)


if __name__ == "__main__":
    addresses = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["index-readme"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(long_description=index_readme(readme, **addresses), long_description_content_type="text/markdown")
