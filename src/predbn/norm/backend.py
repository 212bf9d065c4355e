"""The only door between the method and code for one kind of device.

A backend may compute the moments of a batch and normalise it; everything else, the equations of the strategies among
it, is PyTorch. Without a backend, or where it returns None, `moments.py`, `robust.py` and `normalise.py` do the same,
and they are the reference.

The module named by the environment variable PREDBN_BACKEND, by default `predbn.gpu`, is imported when a tensor that is
not on a CPU is first seen; it registers what it has. PREDBN_BACKEND= (empty) uses PyTorch alone.
"""

from __future__ import annotations

import importlib
import os
from typing import NamedTuple, Protocol

from torch import Tensor

from .segments import Segments
from .statistics import Moments, Statistics
from .tracing import is_constant_in_graphs


class Bounds(NamedTuple):
    """How the influence of each example on the moments is bounded; the equations are those of `robust.py`.

    limit      c for many examples
    clean_var  the variance of clean values, [C]
    scatter    the variance of the means of clean examples relative to it, [C] or one number
    clipping   what clipping does to clean examples, [3, C]; None if it is not corrected
    """

    limit: float
    clean_var: Tensor
    scatter: Tensor | float
    clipping: Tensor | None


class Backend(Protocol):
    """Every method may return None, which means: let PyTorch do it."""

    def moments(self, x: Tensor, eps: float, segments: Segments | None, bounds: Bounds | None) -> Moments | None:
        """The moments of x, [N, C, …]: [C], or [S, C] with segments."""

    def normalise(
        self,
        x: Tensor,
        statistics: Statistics,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        segments: Segments | None,
    ) -> Tensor | None:
        """weight · (x − mean) / √(var + eps) + bias, with statistics [C], or [S, C] of the segments."""


_backends: dict[str, Backend | None] = {"cpu": None}
"""By device type; None for PyTorch alone."""


def register(device_type: str, backend: Backend) -> None:
    """Use a backend for tensors on devices of this type, such as "cuda"."""
    _backends[device_type] = backend


def backend_of(device_type: str) -> Backend | None:
    """The backend for tensors on devices of this type; None for PyTorch alone."""
    _import_named_module(device_type)
    return _backends[device_type]


@is_constant_in_graphs
def _import_named_module(device_type: str) -> None:
    if device_type not in _backends:
        name = os.environ.get("PREDBN_BACKEND", "predbn.gpu")
        if name:
            importlib.import_module(name)
        _backends.setdefault(device_type, None)
