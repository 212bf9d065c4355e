"""Whether the files of a command can be written: checked before the work and not after it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from predbn.common import PredbnError

_SAMPLE = bytes(1 << 16)
"""What is written for a trial: a folder on a full disk still takes empty files."""


def check_folder(folder: Path) -> None:
    """Raise an error if files cannot be written to a folder. It need not exist, and is not created."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise PredbnError(f"{folder} cannot be written to ({existing} is not a folder): choose another folder.")
    try:
        with TemporaryFile(dir=existing, buffering=0) as file:
            file.write(_SAMPLE)
    except OSError as error:
        raise PredbnError(
            f"{folder} cannot be written to ({error.strerror}): choose another folder, or change the rights or the "
            "free space of this one."
        ) from None


def check_file(path: Path) -> None:
    """Raise an error if a file cannot be written. It is not created."""
    if path.exists() and not path.is_file():
        raise PredbnError(f"{path} is not a file: give the name of a file to write.")
    check_folder(path.parent)
