"""The folder for downloaded and decoded data."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`PREDBN_CACHE` if it is set, otherwise the folder `predbn` in the user's cache folder."""
    chosen = os.environ.get("PREDBN_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("predbn", appauthor=False, opinion=False)
