"""Nested dictionaries of tensors and plain data as .safetensors files, with a checksum: nothing in them can run code.

The structure is JSON in the metadata of the file; a tensor stands there as {"tensor": number}. Layers often share a
tensor, which is then stored once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .checksums import CHECKSUM_FIELD, read_checked
from .errors import PredbnError, first_line
from .extras import needs_extra
from .files import atomic_write

_TENSOR = "tensor"
_METADATA = "predbn"


def write_tensors(path: Path, content: dict[str, Any], *, is_shared: bool = False) -> None:
    """Write a dictionary atomically. Keys are strings; values are tensors, plain data, or dictionaries of them.

    `is_shared` is that of `atomic_write`.
    """
    with needs_extra("files"):
        from safetensors.torch import save

    tensors: dict[int, tuple[int, Tensor]] = {}
    structure = _without_tensors(content, tensors)
    stored = {str(number): _plain(tensor) for number, tensor in tensors.values()}
    # The checksum has to be near the beginning of the file, and safetensors writes the metadata first.
    metadata = {_METADATA: json.dumps({"checksum": CHECKSUM_FIELD, "content": structure})}
    with atomic_write(path, checksum=True, is_shared=is_shared) as partial:
        partial.write_bytes(save(stored, metadata))


def read_tensors(path: Path, *, kind: str, error: type[PredbnError], remedy: str) -> dict[str, Any]:
    """What `write_tensors` wrote, with its tensors on the CPU.

    Raises `error` if that fails: the path "cannot be read as `kind`", the reason, and `remedy`. A file that does not
    exist is a FileNotFoundError.
    """
    return parse_tensors(read_checked(path, error=error, remedy=remedy), path, kind=kind, error=error, remedy=remedy)


def parse_tensors(content: bytes, path: Path, *, kind: str, error: type[PredbnError], remedy: str) -> dict[str, Any]:
    """The same for the content of a file that was read and checked."""
    with needs_extra("files"):
        from safetensors.torch import load

    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        structure = json.loads(header["__metadata__"][_METADATA])["content"]
        restored: dict[str, Any] = _with_tensors(structure, tensors)
    except MemoryError:
        raise
    except Exception as reason:  # safetensors raises errors of its own, and KeyErrors for types that torch lacks
        raise error(f"{path} cannot be read as {kind} ({first_line(reason)}): {remedy}.") from None
    return restored


def _without_tensors(value: Any, tensors: dict[int, tuple[int, Tensor]]) -> Any:
    """The structure of a value. Its tensors are numbered and collected by identity."""
    if isinstance(value, Tensor):
        return {_TENSOR: tensors.setdefault(id(value), (len(tensors), value))[0]}
    if isinstance(value, dict):
        return {key: _without_tensors(item, tensors) for key, item in value.items()}
    return value


def _with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {_TENSOR} and isinstance(value[_TENSOR], int):
        return tensors[str(value[_TENSOR])]
    return {key: _with_tensors(item, tensors) for key, item in value.items()}


def _plain(tensor: Tensor) -> Tensor:
    """With memory of its own, on the CPU: safetensors refuses tensors that share theirs."""
    return tensor.detach().to("cpu", copy=True).contiguous().to(memory_format=torch.contiguous_format)
