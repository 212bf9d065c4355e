"""JSON files with a checksum: an object, one entry per line, and the entry "checksum" at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .checksums import CHECKSUM_FIELD, read_checked
from .errors import PredbnError
from .files import atomic_write

_KEY = "checksum"


def write_json(path: Path, content: Mapping[str, Any], *, indent: int = 1, is_shared: bool = False) -> None:
    """Write an object atomically, with a checksum. `is_shared` is that of `atomic_write`."""
    text = json.dumps({**content, _KEY: CHECKSUM_FIELD}, indent=indent, ensure_ascii=False) + "\n"
    with atomic_write(path, checksum=True, is_shared=is_shared) as partial:
        partial.write_bytes(text.encode(errors="backslashreplace"))  # for names of files that are not UTF-8


def read_json(path: Path, *, error: type[PredbnError], remedy: str) -> dict[str, Any]:
    """The object in a file, without its checksum, which is checked if there is one.

    Raises `error`, whose message ends with `remedy`, if the file is damaged or not a JSON object. A file that does not
    exist is a FileNotFoundError.
    """
    content = read_checked(path, error=error, remedy=remedy)
    try:
        entries = json.loads(content.decode())
    except (ValueError, RecursionError) as reason:
        raise error(f"{path} cannot be read as JSON ({reason}): {remedy}.") from None
    if not isinstance(entries, dict):
        raise error(f"{path} cannot be read as a JSON object (it is a {type(entries).__name__}): {remedy}.")
    entries.pop(_KEY, None)
    return entries
