"""TOML, which Python reads since 3.11; on 3.10 the package tomli does."""

from __future__ import annotations

import sys
from typing import Any

from .extras import needs_extra


def parse_toml(text: str) -> dict[str, Any]:
    """The entries of a TOML document; a ValueError or RecursionError if it is none."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        with needs_extra("eval"):
            import tomli as tomllib  # type: ignore[import-not-found]
    entries: dict[str, Any] = tomllib.loads(text)
    return entries
