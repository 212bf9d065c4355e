"""Which commit of the code this is."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["commit"]

_DESCRIBE = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]


def commit(here: Path = Path(__file__)) -> str | None:
    """The commit of the checkout that this file is part of ("-dirty" where it was changed), or None outside one."""
    git = ["git", "-C", str(here.parent)]
    try:
        for arguments in (["ls-files", "--error-unmatch", here.name], _DESCRIBE):
            found = subprocess.run([*git, *arguments], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
