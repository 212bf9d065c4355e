"""Tensors of the Open Inference Protocol: their types, and their values as JSON lists or as bytes."""

from __future__ import annotations

import math
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
"""The types of the protocol that torch has too, little-endian."""


def datatype_of(dtype: torch.dtype) -> str | None:
    """The name of a type in the protocol, or None."""
    name = str(dtype).removeprefix("torch.")
    return next((datatype for datatype, numpy_type in DATATYPES.items() if numpy_type.name == name), None)


def from_bytes(name: str, content: memoryview, shape: tuple[int, ...], datatype: str) -> Array:
    """The tensor in these bytes."""
    dtype = DATATYPES[datatype]
    expected = math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise RequestError(
            400, f"input '{name}' of {datatype} {list(shape)} takes {expected} bytes, but got {len(content)}."
        )
    return np.frombuffer(content, dtype).reshape(shape)


def from_json(name: str, data: Any, shape: tuple[int, ...], datatype: str) -> Array:
    """The tensor of a list of numbers, nested or flat, in row-major order."""
    dtype = DATATYPES[datatype]
    types: set[type] = {bool} if dtype.kind == "b" else {int, float} if dtype.kind == "f" else {int}
    wrong = RequestError(
        400, f"the data of input '{name}' must be a list of {datatype} numbers with the shape {list(shape)}."
    )
    values = [data]
    while values and set(map(type, values)) == {list}:
        values = list(chain.from_iterable(values))
    # Types are checked first: of a string among numbers NumPy would make an array of strings, which can be huge.
    if len(values) != math.prod(shape) or not set(map(type, values)) <= types:
        raise wrong
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise RequestError(400, f"input '{name}' has values outside {datatype}: {limits.min} to {limits.max}.")
    try:
        with np.errstate(over="ignore"):  # 1e300 becomes infinite in FP32, which is refused later
            return np.array(values, dtype).reshape(shape)
    except OverflowError:  # an integer that no float can hold
        raise wrong from None
