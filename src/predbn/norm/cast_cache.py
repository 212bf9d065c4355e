"""Parameters of a half-precision layer in single precision, converted once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .kernels import is_tracing


class _Entry(NamedTuple):
    """One conversion. It holds the original tensors, so that no other tensor can take their address."""

    a: Tensor
    b: Tensor
    version: tuple[object, ...]
    converted: tuple[Tensor, Tensor]


class CastCache:
    """A pair of tensors in another dtype.

    On a GPU, launching a conversion takes as long as the normalisation itself, so the last pair is reused until one of
    the tensors is replaced or changed.
    """

    def __init__(self) -> None:
        self._entry: _Entry | None = None

    def get(self, dtype: torch.dtype, a: Tensor | None, b: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if a is None or b is None or (a.dtype == dtype and b.dtype == dtype):
            return a, b
        cacheable = not is_tracing() and not a.is_inference() and not b.is_inference()
        if not cacheable or (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)):
            return a.to(dtype), b.to(dtype)
        entry, version = self._entry, (dtype, a.data_ptr(), a._version, b.data_ptr(), b._version)
        if entry is None or entry.a is not a or entry.b is not b or entry.version != version:
            with torch.inference_mode(False), torch.no_grad():
                entry = _Entry(a, b, version, (a.detach().to(dtype), b.detach().to(dtype)))
            self._entry = entry
        return entry.converted

    def __getstate__(self) -> dict[str, object]:
        """A copy of the layer has other tensors and starts with an empty cache."""
        return {"_entry": None}
