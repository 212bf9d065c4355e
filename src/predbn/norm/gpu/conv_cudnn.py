"""Convolutions of cuDNN that also add up their output: Σy and Σy² of each channel come out of the same kernel.

cuDNN calls that `genstats`. Its kernels for half precision take little longer than the convolution alone, where reading
the output again takes half as long as all convolutions of a ResNet-50. They are reached through cuDNN's Python package
(pip install predbn[cudnn]); cuDNN itself comes with PyTorch. With n values in a channel

    mean = Σy/n,    var = max(Σy²/n − mean², ε·mean²),    ε = 4·10⁻⁶.

The sums are in single precision, those of the values before they are rounded, and not about a pilot: var has an error
of up to 1.4·10⁻⁶ of mean² (measured on an H200), which matters if the mean is large compared to the spread. So ε bounds
from below what can be known, and a convolution whose output has mean² > 1,000·var in its first finite batch is
computed separately from then on. What is added up in which order may vary from run to run.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import current_cuda_stream, is_being_captured
from .conv_choice import CUDNN, SEPARATE, SITES
from .conv_operators import convolved_shape
from .mixed_moments import Mixing, mixed_moments, mixed_moments_of_totals
from .timing import microseconds

LEAST_VARIANCE = 4e-6
"""ε."""
MOST_SQUARED_OFFSET = 1000.0
"""The most that mean²/var may be."""
_MOST_PLANS = 5
"""So many of the plans that cuDNN offers are timed. It offers about ten, the best of which is among the first."""
_MOST_SHAPES = 4096
"""So many shapes have plans. Every batch size is one for each convolution."""
_ALIGNMENT = 8
_ALONE = Mixing()
"""Moments that are not mixed with anything."""


class Geometry(NamedTuple):
    """How a convolution goes over its input, for height and width."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        """With PyTorch's own operator."""
        return F.conv2d(x, weight, None, self.stride, self.padding, self.dilation)


def new_geometry(stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Geometry:
    return Geometry(*((each[0], each[1]) for each in (stride, padding, dilation)))


class _Plan(NamedTuple):
    """An operation graph of cuDNN with a plan that was chosen for it, and its numbers (uids) of x, weight, y, Σy and
    Σy²."""

    graph: Any
    uids: tuple[int, ...]
    workspace: int


@cache
def is_installed() -> bool:
    return find_spec("cudnn") is not None


def can_be_used(x: Tensor, weight: Tensor) -> bool:
    """Whether cuDNN may have such a kernel; only building one tells for sure."""
    channels, depth = weight.shape[:2]
    is_half = x.dtype == weight.dtype == torch.float16
    return is_installed() and x.is_cuda and is_half and channels % _ALIGNMENT == 0 and depth % _ALIGNMENT == 0


def with_moments(
    x: Tensor, weight: Tensor, geometry: Geometry, mixing: Mixing = _ALONE, site: int = -1
) -> tuple[Tensor, Tensor]:
    """The convolution y of x, and what `mixed_moments` returns for it, [6, C].

    They are computed separately where cuDNN has no kernel for the shape, and where its sums are not precise enough for
    the values of this site.
    """
    x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
    known = SITES[site] if 0 <= site < len(SITES) else None
    plan = None if known is not None and known.way == SEPARATE else _plan_of(x, weight, geometry)
    if plan is None:
        return _separate(x, weight, geometry, mixing)
    y, found = _with_plan(plan, x, weight, geometry, mixing)
    if known is not None and known.way is None and not is_being_captured(x):
        squared = found[0] * found[0]
        if bool((squared > MOST_SQUARED_OFFSET * found[1]).any()):
            known.way = SEPARATE
            return _separate(x, weight, geometry, mixing)
        if bool(squared.isfinite().all()):  # otherwise the next batch tells
            known.way = CUDNN
    return y, found


def _with_plan(
    plan: _Plan, x: Tensor, weight: Tensor, geometry: Geometry, mixing: Mixing = _ALONE
) -> tuple[Tensor, Tensor]:
    y, totals = _run(plan, x, weight, geometry)
    return y, mixed_moments_of_totals(totals, y.numel() // y.shape[1], len(y), mixing, LEAST_VARIANCE)


def _separate(x: Tensor, weight: Tensor, geometry: Geometry, mixing: Mixing = _ALONE) -> tuple[Tensor, Tensor]:
    y = geometry.convolve(x, weight).contiguous(memory_format=torch.channels_last)
    return y, mixed_moments(y, mixing)


def time_of(x: Tensor, weight: Tensor, geometry: Geometry) -> float:
    """How long that takes in microseconds; infinite if cuDNN has no kernel for it."""
    plan = _plan_of(x, weight, geometry)
    return float("inf") if plan is None else microseconds(lambda: _with_plan(plan, x, weight, geometry))


def time_of_separate(x: Tensor, weight: Tensor, geometry: Geometry) -> float:
    """How long the convolution and the moments of its output take one after the other, in microseconds."""
    _separate(x, weight, geometry)
    return microseconds(lambda: _separate(x, weight, geometry))


_plans: dict[Any, _Plan | None] = {}
_handles: dict[torch.device, Any] = {}
_streams: dict[torch.device, int] = {}
"""The CUDA stream that each handle was told to use."""
_lock = threading.RLock()
"""A handle of cuDNN serves one thread at a time."""


def _plan_of(x: Tensor, weight: Tensor, geometry: Geometry) -> _Plan | None:
    """The fastest plan for tensors of these shapes in channels_last; None if there is none.

    It is looked for when they are first seen. While a CUDA graph is recorded nothing can be timed. Plans are kept for
    good, because a graph may use them; for shapes beyond a number that models do not have there are none.
    """
    key = x.device, x.shape, weight.shape, geometry
    if key not in _plans:
        if is_being_captured(x) or len(_plans) >= _MOST_SHAPES:
            return None
        with _lock, torch.cuda.device(x.device):
            if key not in _plans:
                _plans[key] = _fastest_plan(x, weight, geometry)
    return _plans[key]


def _fastest_plan(x: Tensor, weight: Tensor, geometry: Geometry) -> _Plan | None:
    try:
        graph, uids = _new_graph(x, weight, geometry)
    except Exception:  # cuDNN's package has several kinds for what is not supported
        return None
    found: dict[float, tuple[int, _Plan]] = {}
    for index in range(min(_MOST_PLANS, graph.get_execution_plan_count())):
        try:
            graph.build_plan_at_index(index)
            plan = _Plan(graph, uids, max(1, graph.get_workspace_size()))
            _run(plan, x, weight, geometry)
            found[microseconds(lambda: _run(plan, x, weight, geometry))] = index, plan  # noqa: B023
        except Exception:  # noqa: S112
            continue
    if not found:
        return None
    index, plan = found[min(found)]
    graph.build_plan_at_index(index)
    return plan


def _new_graph(x: Tensor, weight: Tensor, geometry: Geometry) -> tuple[Any, tuple[int, ...]]:
    import cudnn

    half, single = cudnn.data_type.HALF, cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        io_data_type=half, intermediate_data_type=half, compute_data_type=single, handle=_handle(x.device)
    )
    image, filters = (
        graph.tensor(name=name, dim=list(t.shape), stride=list(t.stride()), data_type=half)
        for name, t in (("image", x), ("filters", weight))
    )
    y = graph.conv_fprop(
        image=image,
        weight=filters,
        padding=list(geometry.padding),
        stride=list(geometry.stride),
        dilation=list(geometry.dilation),
    )
    total, squares = graph.genstats(input=y)
    y.set_output(True).set_data_type(half)
    for sums in (total, squares):
        sums.set_output(True).set_data_type(single)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    return graph, tuple(tensor.get_uid() for tensor in (image, filters, y, total, squares))


def _handle(device: torch.device) -> Any:
    import cudnn

    if device not in _handles:
        _handles[device] = cudnn.create_handle()
    return _handles[device]


def _run(plan: _Plan, x: Tensor, weight: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    shape = convolved_shape(x.shape, weight.shape, *geometry)
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    totals = torch.empty((2, weight.shape[0]), dtype=torch.float32, device=x.device)
    workspace = torch.empty(plan.workspace, dtype=torch.uint8, device=x.device)
    values = x, weight, y, *totals.unbind()
    with _lock, torch.cuda.device(x.device):
        handle = _handle_for_stream(x)
        plan.graph.execute(values, workspace, handle=handle, tensor_uids=plan.uids)
    return y, totals


def _handle_for_stream(x: Tensor) -> Any:
    """The handle of a device, told to use the current stream of x."""
    import cudnn

    handle, stream = _handle(x.device), current_cuda_stream(x)
    if _streams.get(x.device) != stream:
        cudnn.set_stream(handle, stream)
        _streams[x.device] = stream
    return handle
