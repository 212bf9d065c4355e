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


def is_fastest_with_cudnn(conv: fx.Node, *, is_ours: bool, is_normalised: bool, relu: bool) -> bool:
    """Whether cuDNN is the fastest way to a convolution and the moments of its output.

    is_ours         whether one of our 1×1 convolutions could take its place
    is_normalised   whether that would also normalise its input, with ReLU if `relu`
    """
    from .gpu import conv_choice, conv_cudnn
    from .gpu.conv import BATCH, apply_prologue
    from .gpu.timing import microseconds

    if conv_choice.FORCED.way is not None:
        return conv_choice.FORCED.way == "cudnn"
    with _values(conv) as values:
        if values is None:
            return False
        x, weight = values
        geometry = geometry_of(conv)
        own = conv_cudnn.time_of(x, weight, geometry)
        if not is_ours:
            return own < conv_cudnn.time_of_separate(x, weight, geometry)
        prologue = _prologue(x, relu) if is_normalised else None
        if prologue is not None:
            apply_prologue(x, prologue)
            own += microseconds(lambda: apply_prologue(x, prologue))
        arguments = x, weight, geometry.stride[0], prologue, BATCH
        return own < conv_choice.time_of(conv_choice.choose(*arguments), *arguments)


def is_fastest_as_it_is(conv: fx.Node, wanted: int, *, is_normalised: bool, relu: bool) -> bool:
    """Whether separate kernels are faster than a 1×1 convolution of ours with the sums that are wanted of its output;
    the other arguments are those above."""
    from .gpu import conv_choice

    if conv_choice.FORCED.way is not None:
        return conv_choice.FORCED.way == "separate"
    with _values(conv) as values:
        if values is None:
            return False
        x, weight = values
        prologue = _prologue(x, relu) if is_normalised else None
        way = conv_choice.choose(x, weight, geometry_of(conv).stride[0], prologue, wanted)
        return way == conv_choice.SEPARATE


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
