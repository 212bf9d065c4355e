"""Which way to compute a convolution and the statistics of its output is the fastest, measured for a graph.

That is done when the graph is compiled, with random values in the shapes of that call. A layer for which separate
kernels are the fastest stays as it is, because Inductor can fuse its normalisation with what follows. For other batch
sizes 1×1 convolutions of ours choose again when they are called (`gpu/conv_choice.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from .fusion_cudnn import geometry_of
from .fx_nodes import example_value

if TYPE_CHECKING:
    from .gpu.conv import Prologue


def fastest_way(conv: fx.Node, wanted: int, *, has_cudnn: bool, has_ours: bool, is_normalised: bool, relu: bool) -> str:
    """The fastest way to a convolution and what is wanted of its output: "cudnn", "fused" (ours), or "separate".

    has_cudnn, has_ours   whether cuDNN and our 1×1 convolutions can compute it
    is_normalised         whether its input is to be normalised, with ReLU if `relu`
    """
    from .gpu import conv_choice, conv_cudnn
    from .gpu.conv import apply_prologue
    from .gpu.timing import microseconds

    without_measuring = "fused" if has_ours else "separate"
    if conv_choice.FORCED.way is not None:
        possible = {"cudnn": has_cudnn, "fused": has_ours, "separate": True}
        return conv_choice.FORCED.way if possible[conv_choice.FORCED.way] else without_measuring
    with _values(conv) as values:
        if values is None or not (has_cudnn or has_ours):
            return without_measuring
        (x, weight), geometry = values, geometry_of(conv)
        prologue = _prologue(x, relu) if is_normalised else None
        if has_ours:
            arguments = x, weight, geometry.stride[0], prologue, wanted
            way = conv_choice.choose(*arguments)
            other = "separate" if way == conv_choice.SEPARATE else "fused"
            if not has_cudnn:
                return other
            time_of_other = conv_choice.time_of(way, *arguments)
        else:
            other, time_of_other = "separate", conv_cudnn.time_of_separate(x, weight, geometry)
        time_of_cudnn = conv_cudnn.time_of(x, weight, geometry)
        if prologue is not None:
            apply_prologue(x, prologue)
            time_of_cudnn += microseconds(lambda: apply_prologue(x, prologue))
        return "cudnn" if time_of_cudnn < time_of_other else other


@contextmanager
def _values(conv: fx.Node) -> Iterator[tuple[Tensor, Tensor] | None]:
    """Random input and weight for a convolution, on whose device it is timed; None if their shapes are not known."""
    with _disable_current_modes():
        x, weight = (_random_values(node) for node in conv.args[:2])
        if x is None or weight is None:
            yield None
            return
        with torch.cuda.device(x.device):
            yield x, weight


def _prologue(x: Tensor, relu: bool) -> Prologue:
    from .gpu.conv import Prologue

    scale, shift = torch.rand(2, x.shape[1], device=x.device)
    return Prologue(scale, shift, relu)


def _random_values(node: Any) -> Tensor | None:
    """Values for a node, in channels_last; None if their shape is not known. Symbols have the values of this batch."""
    example = example_value(node)
    if example is None:
        return None
    shape = [size if isinstance(size, int) else size.node.hint for size in example.shape]
    if None in shape:
        return None
    layout = torch.channels_last
    return torch.empty(shape, dtype=example.dtype, device=example.device, memory_format=layout).normal_()
