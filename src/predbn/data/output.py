"""Output folders that can be continued: a card beside the files records what they are made from."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from predbn.common import PARTIAL_SUFFIX, DataError, lock_folder, read_json, write_json

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def open_output(folder: Path, card_name: str, card: Mapping[str, Any]) -> Iterator[None]:
    """Create a folder, or continue one that has the same card; it is locked until the end of the block.

    Unfinished files are removed, at the beginning those of a killed run and at the end those of a block that raises. A
    folder with other files, or with another card, is an error.
    """
    try:
        with _open_locked(folder, card_name, card):
            yield
    except OSError as error:
        where, reason = error.filename or folder, error.strerror or error
        remedy = "choose another directory, or change its permissions"
        if error.errno in _NO_SPACE:
            remedy = "make room and run the same command again, which continues"
        raise DataError(f"{where} cannot be written ({reason}): {remedy}.") from None


@contextmanager
def _open_locked(folder: Path, card_name: str, card: Mapping[str, Any]) -> Iterator[None]:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file, but the output needs a directory.")
    path = folder / card_name
    own_files = {card_name + PARTIAL_SUFFIX, ".lock"}
    has_files = folder.exists() and any(file.name not in own_files for file in folder.iterdir())
    if has_files and not path.exists():  # in this order: another process may be about to write the card
        raise DataError(f"{folder} is not empty and was not made by this command: choose another directory.")
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, error=DataError):
        remedy = f"delete {folder}, or choose another directory"
        if path.exists() and read_json(path, error=DataError, remedy=remedy) != card:
            raise DataError(f"{folder} was begun with other data or options: delete it, or choose another directory.")
        try:
            _remove_unfinished(folder)
            write_json(path, card)
            yield
        finally:
            _remove_unfinished(folder)


def _remove_unfinished(folder: Path) -> None:
    for leftover in folder.rglob("*" + PARTIAL_SUFFIX):
        leftover.unlink(missing_ok=True)
