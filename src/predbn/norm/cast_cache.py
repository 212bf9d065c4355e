"""Parameters of a half-precision layer in single precision, converted once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .kernels import is_recorded


class _Kept(NamedTuple):
    """One conversion. It holds on to the tensors, so that no other can come to stand at their address."""

    a: Tensor
    b: Tensor
    version: tuple[object, ...]
    pair: tuple[Tensor, Tensor]


class Widened:
    """A pair of tensors in another dtype. On a GPU a conversion costs as much time to launch as the
    normalisation itself, so the last pair is kept until one of the tensors is replaced or changed."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def get(self, dtype: torch.dtype, a: Tensor | None, b: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if a is None or b is None or (a.dtype == dtype and b.dtype == dtype):
            return a, b
        fixed = not is_recorded() and not a.is_inference() and not b.is_inference()
        if not fixed or (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)):
            return a.to(dtype), b.to(dtype)
        kept, version = self._kept, (dtype, a.data_ptr(), a._version, b.data_ptr(), b._version)
        if kept is None or kept.a is not a or kept.b is not b or kept.version != version:
            with torch.inference_mode(False), torch.no_grad():
                kept = _Kept(a, b, version, (a.detach().to(dtype), b.detach().to(dtype)))
            self._kept = kept
        return kept.pair

    def __getstate__(self) -> dict[str, object]:
        """A copy of the layer has other tensors: it converts its own."""
        return {"_kept": None}
