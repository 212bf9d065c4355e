"""Files of torch.save: tensors and plain data, with a checksum.

Such a file is a zip archive. Its comment, at the very end, holds the checksum; torch and all zip programs ignore it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import torch

from .checksums import CHECKSUM_FIELD, open_checked
from .errors import PredbnError, first_line
from .files import atomic_write

_END_RECORD = b"PK\x05\x06"
_END_RECORD_BYTES = 22


def write_torch_file(path: Path, content: Any) -> None:
    """Write what torch.save can write, atomically and with a checksum."""
    comment = CHECKSUM_FIELD.encode()
    with atomic_write(path, checksum=True) as partial, partial.open("wb+") as file:
        torch.save(content, file)
        # The archive ends with a record whose last two bytes are the length of the comment that follows it.
        file.seek(-_END_RECORD_BYTES, os.SEEK_END)
        assert file.read(len(_END_RECORD)) == _END_RECORD
        file.seek(-2, os.SEEK_END)
        file.write(len(comment).to_bytes(2, "little") + comment)


def read_torch_file(
    path: Path, *, kind: str, error: type[PredbnError], remedy: str, device: torch.device | str = "cpu"
) -> Any:
    """What torch.save wrote: tensors and plain data. Nothing else is unpickled, because that could run code.

    Raises `error` if that fails: the path "cannot be read as `kind`", the reason, and `remedy`. A file that does not
    exist is a FileNotFoundError.
    """
    with open_checked(path, error=error, remedy=remedy) as file:
        try:
            return torch.load(file, map_location=device, weights_only=True)
        except Exception as reason:  # torch raises almost anything
            raise error(f"{path} cannot be read as {kind} ({_explain(reason)}): {remedy}.") from None


def _explain(reason: Exception) -> str:
    """Why torch refuses a file, without its advice to load it with weights_only=False, which would run any code."""
    refused = re.search(r"GLOBAL (\S+)", str(reason))
    if refused:
        return f"it contains {refused[1]}, and only tensors and plain data are read"
    if "weights_only" in str(reason) or isinstance(reason, KeyError):
        return "torch.save has not written it"
    return first_line(reason).partition(". ")[0]
