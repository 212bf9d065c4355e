"""Output folders that can be continued: a card beside the files records what they are made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from predbn.common import PARTIAL_SUFFIX, DataError, lock_folder, write_text


@contextmanager
def open_output(folder: Path, card_name: str, card: Mapping[str, Any]) -> Iterator[None]:
    """Create a folder, or continue one that has the same card; it is locked until the end of the block.

    Unfinished files of a killed run are removed. A folder with other files, or with another card, is an error.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file, but the output needs a directory.")
    path = folder / card_name
    own_files = {card_name + PARTIAL_SUFFIX, ".lock"}
    if folder.exists() and not path.exists() and any(file.name not in own_files for file in folder.iterdir()):
        raise DataError(f"{folder} is not empty and was not made by this command: choose another directory.")
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, error=DataError):
        if path.exists() and json.loads(path.read_text()) != card:
            raise DataError(f"{folder} was begun with other data or options: delete it, or choose another directory.")
        for leftover in folder.rglob("*" + PARTIAL_SUFFIX):
            leftover.unlink()
        write_text(path, json.dumps(card, indent=1) + "\n")
        yield
