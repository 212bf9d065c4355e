"""Tensors of the Open Inference Protocol: their types, and their values as JSON lists or as bytes."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .errors import RequestError

Array = npt.NDArray[Any]

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""The types of the protocol that torch has too. Bytes are little-endian."""


def datatype_of(dtype: torch.dtype) -> str | None:
    """The protocol's name of a type; None if it has none."""
    name = str(dtype).removeprefix("torch.")
    return next((datatype for datatype, other in DATATYPES.items() if other.name == name), None)


def from_bytes(name: str, content: memoryview, shape: tuple[int, ...], datatype: str) -> Array:
    """The tensor that these bytes are."""
    dtype = DATATYPES[datatype]
    expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(content) != expected:
        raise RequestError(
            400,
            f"input '{name}' has {len(content)} bytes, but {datatype} {list(shape)} takes {expected}: send so many.",
        )
    return np.frombuffer(content, dtype).reshape(shape)


def from_json(name: str, data: Any, shape: tuple[int, ...], datatype: str) -> Array:
    """The tensor of a list of numbers, nested or flat, in row-major order."""
    wrong = RequestError(
        400, f"the data of input '{name}' must be a list of {datatype} numbers with the shape {list(shape)}."
    )
    dtype = DATATYPES[datatype]
    if not isinstance(data, list) or not _has_numbers(data, int(np.prod(shape, dtype=np.int64)), dtype):
        raise wrong
    try:
        values = np.asarray(data)
    except (ValueError, OverflowError):  # rows of different lengths, integers that no float can hold
        raise wrong from None
    allowed = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]
    if values.dtype.kind not in allowed:
        raise wrong
    if values.size and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise RequestError(
                400,
                f"input '{name}' has values that {datatype} cannot hold: it goes from {limits.min} to {limits.max}.",
            )
    with np.errstate(over="ignore"):  # 1e300 becomes infinite in FP32, which is refused later
        return values.astype(dtype).reshape(shape)


def _has_numbers(data: list[Any], count: int, dtype: np.dtype[Any]) -> bool:
    """Whether a nested list has so many numbers and no texts, of which numpy would make an array of gigabytes."""
    values = data
    while values and set(map(type, values)) == {list}:
        values = list(chain.from_iterable(values))
    return len(values) == count and set(map(type, values)) <= ({bool} if dtype.kind == "b" else {int, float})
