"""Triton kernels as a backend of `predbn.norm`: moments in one read, normalisation in one read and one write.

In graphs of torch.compile the moments are custom operators: Inductor's own reductions over a batch are slow
(pytorch issue 120184). It makes one kernel of the normalisation and what follows, so `normalise` leaves that to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from predbn.norm import Bounds, Moments, Segments, Statistics, is_exporting, is_native, needs_gradients

from . import pooling, sums
from .launch import broken_devices, can_be_built
from .normalise import normalise

MAX_BOUNDED = 1024
"""How many examples of a segment can be bounded: one program sorts them."""
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton runs kernels on the CPU, for tests."""
_DTYPES = torch.float16, torch.bfloat16, torch.float32
_PLAIN = torch.Tensor, torch.nn.Parameter


class TritonBackend:
    """Every method returns None where kernels cannot be used."""

    def moments(self, x: Tensor, eps: float, segments: Segments | None, bounds: Bounds | None) -> Moments | None:
        """The moments of x, [N, C, …]: [C], or [S, C] with segments.

        With segments or bounds, examples that are not finite are left out. `size` and `values` are then tensors,
        [S, 1], or [1] without segments, because reading how many are left would force a synchronisation. Without
        either they are numbers, and a value that is not finite spoils its channel.
        """
        is_compiling = torch.compiler.is_dynamo_compiling()
        if not (_can_call_operators(x) if is_compiling else _can_launch(x)):
            return None
        examples, *_ = shape = x.shape
        positions = math.prod(shape[2:])
        group = examples if segments is None else segments.group
        if group is not None and group * positions <= 1:  # a single value has no variance
            return None
        if segments is None and bounds is None:
            mean, var = (moments if is_compiling else sums.moments)(x).unbind()
            return Moments(mean, var, examples * positions, examples)
        rows, largest = None, examples if group is None else group
        if segments is not None and group is None:
            if is_compiling:
                return None
            rows = segments.row_order(x.device)
            largest = rows.largest
        tensors: tuple[Tensor | None, ...] = (None,) * 3
        if bounds is not None:
            scatter = bounds.scatter
            if not isinstance(scatter, Tensor):
                scatter = torch.full_like(bounds.clean_var, scatter)
            tensors = bounds.clean_var, scatter, bounds.clipping
            if largest > MAX_BOUNDED or not _are_readable(*tensors):
                return None
        count, limit = 1 if segments is None else segments.count, 0.0 if bounds is None else bounds.limit
        if is_compiling:
            table, size = pooled_moments(x, count, eps, limit, *tensors)
        else:
            order = None if rows is None else (rows.order, rows.starts)
            table, size = _pooled_moments(x, count, order, largest, eps, limit, tensors)
        if segments is None:
            table, size = table[:, 0], size[0]
        mean, var, between = table.unbind()
        return Moments(mean, var, size * positions, size, None if bounds is None else between)

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
        mean, var = statistics
        if eps <= 0 or not _can_launch(x) or mean.dtype != torch.float32 or var.dtype != torch.float32:
            return None
        if not _are_readable(mean, var, weight, bias, device=x.device):
            return None
        rows = None
        if mean.dim() == 2:
            if segments is not None:
                if x.shape[0] != segments.examples:  # several rows per example
                    return None
                rows = segments.row_order(x.device).segments if segments.group is None else None
            if rows is None and x.shape[0] % mean.shape[0]:
                return None
        mean, var = mean.contiguous(), var.contiguous()
        weight, bias = (t if t is None else t.contiguous() for t in (weight, bias))
        return normalise(x, mean, var, weight, bias, eps, rows)


def _can_launch(x: Tensor) -> bool:
    """Whether kernels can be launched on a tensor."""
    return _is_supported(x) and is_native(x) and x.numel() > 0 and is_dense(x) and can_be_built(x.device)


def _can_call_operators(x: Tensor) -> bool:
    """Whether a graph of torch.compile may call the operators with a tensor."""
    if is_exporting() or needs_gradients(x):
        return False
    return _is_supported(x) and x.dim() > 2 and not broken_devices


def _is_supported(x: Tensor) -> bool:
    return (x.is_cuda or IS_INTERPRETED) and x.dtype in _DTYPES


def _are_readable(*tensors: Tensor | None, device: torch.device | None = None) -> bool:
    """Whether kernels may read parameters and buffers, which must be on the device if one is given."""
    if needs_gradients(*tensors):
        return False
    if torch.compiler.is_dynamo_compiling():
        return True
    for t in tensors:
        if t is None:
            continue
        if type(t) not in _PLAIN or torch._C._functorch.is_functorch_wrapped_tensor(t):
            return False
        if device is not None and t.device != device:
            return False
    return True


def is_dense(x: Tensor) -> bool:
    """Whether x, [N, C, …], lies in memory without gaps, in channels_last or not."""
    return x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last) or x.movedim(1, -1).is_contiguous()


def _pooled_moments(
    x: Tensor,
    count: int,
    order: tuple[Tensor, Tensor] | None,
    largest: int,
    eps: float,
    limit: float,
    bounds: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor]:
    clean_var, scatter, *others = (t if t is None else t.to(x.device, torch.float32).contiguous() for t in bounds)
    tensors = None if clean_var is None or scatter is None else pooling.BoundTensors(clean_var, scatter, *others)
    return pooling.pooled_moments(x, count, order, largest, eps, limit, tensors)


_LIBRARY = torch.library.Library("predbn", "FRAGMENT")


def _operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as an operator; `fake` makes empty results of the same shapes, for graphs.

    It is called directly. What torch.library.custom_op does around each call (it looks for aliases, and for gradients)
    takes longer than most of these kernels, and a compiled network calls one for every layer.
    """
    name = schema.partition("(")[0]

    def register(function: Callable[..., Any]) -> Any:
        _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"predbn::{name}", fake, lib=_LIBRARY)
        return getattr(torch.ops.predbn, name).default

    return register


@_operator(
    "moments(Tensor x) -> Tensor",
    lambda x: x.new_empty((2, x.shape[1]), dtype=torch.float32),
)
def moments(x: Tensor) -> Tensor:
    """Mean and biased variance of each channel of x, [N, C, …], as [2, C]."""
    return sums.moments(x if is_dense(x) else x.contiguous())


@_operator(
    "pooled_moments(Tensor x, SymInt count, float eps, float limit, Tensor? clean_var, Tensor? scatter, "
    "Tensor? clipping) -> (Tensor, Tensor)",
    lambda x, count, *_: (
        x.new_empty((3, count, x.shape[1]), dtype=torch.float32),
        x.new_empty((count, 1), dtype=torch.float32),
    ),
)
def pooled_moments(x: Tensor, count: int, eps: float, limit: float, *bounds: Tensor | None) -> tuple[Tensor, Tensor]:
    """What `pooling.pooled_moments` computes for `count` groups of consecutive examples."""
    x = x if is_dense(x) else x.contiguous()
    return _pooled_moments(x, count, None, len(x) // count, eps, limit, bounds)
