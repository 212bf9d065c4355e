"""Which commit of the code this is."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["commit"]


def commit() -> str | None:
    """The commit of the checkout that this code runs from, or None for an installed package."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
