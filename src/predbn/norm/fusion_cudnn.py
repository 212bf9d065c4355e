"""Moments that come out of a convolution of cuDNN, in the graph of a network (`fusion.py`).

Whether cuDNN's kernel is the fastest way is measured when the graph is compiled, for the batch size of that call.
Between the ways of a 1×1 convolution of ours the choice is made when a shape is first predicted
(`gpu/conv_choice.py`).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from . import kernels
from .fx_nodes import argument, example_value, in_channels_last, mixing_of, pair, replace_moments

if TYPE_CHECKING:
    from .gpu.conv_cudnn import Geometry


def can_use_cudnn(conv: fx.Node) -> bool:
    """Whether a convolution may be one of cuDNN's with sums."""
    x, weight, y = (example_value(node) for node in (*conv.args[:2], conv))
    if x is None or weight is None or y is None or x.dim() != 4 or y.requires_grad or not kernels.can_fuse(x):
        return False
    if not x.dtype == weight.dtype == y.dtype:  # autocast
        return False
    if argument(conv, 2, "bias", None) is not None or argument(conv, 6, "groups", 1) != 1:
        return False
    if isinstance(argument(conv, 4, "padding", 0), str) or torch.are_deterministic_algorithms_enabled():
        return False
    from .gpu.conv_cudnn import can_be_used

    return can_be_used(x, weight)


def is_fastest_with_cudnn(conv: fx.Node, *, is_ours: bool, is_normalised: bool, relu: bool) -> bool:
    """Time a convolution and the moments of its output, computed by cuDNN and in other ways, with random values.

    is_ours         whether one of our 1×1 convolutions could take its place
    is_normalised   whether that would also normalise its input, with ReLU if `relu`
    """
    from .gpu import conv_choice, conv_cudnn
    from .gpu.conv import BATCH, Prologue, apply_prologue
    from .gpu.timing import microseconds

    if conv_choice.FORCED.way is not None:
        return conv_choice.FORCED.way == "cudnn"
    with _disable_current_modes():
        x, weight = (_random_values(node) for node in conv.args[:2])
        if x is None or weight is None:
            return False
        geometry = _geometry_of(conv)
        with torch.cuda.device(x.device):  # where it is timed
            own = conv_cudnn.time_of(x, weight, geometry)
            if not is_ours:
                return own < conv_cudnn.time_of_separate(x, weight, geometry)
            prologue = None
            if is_normalised:
                scale, shift = torch.rand(2, x.shape[1], device=x.device)
                prologue = Prologue(scale, shift, relu)
                apply_prologue(x, prologue)
                own += microseconds(lambda: apply_prologue(x, prologue))
            arguments = x, weight, geometry.stride[0], prologue, BATCH
            return own < conv_choice.time_of(conv_choice.choose(*arguments), *arguments)


def replace_by_cudnn(graph: fx.Graph, conv: fx.Node, moments: fx.Node) -> int:
    """Let the moments come out of cuDNN's kernel; the number of the site. The input is normalised as it was."""
    from .gpu.conv_choice import new_site

    site = new_site()
    with graph.inserting_before(conv):
        x = in_channels_last(graph, conv.args[0])
        arguments = x, conv.args[1], *map(list, _geometry_of(conv)), site, *mixing_of(graph, moments)
        fused = graph.call_function(torch.ops.predbn.any_conv_moments.default, arguments)
        y, found = (graph.call_function(operator.getitem, (fused, index)) for index in range(2))
    y.meta = dict(conv.meta)
    conv.replace_all_uses_with(y)
    graph.erase_node(conv)
    replace_moments(graph, moments, found)
    return site


def _geometry_of(conv: fx.Node) -> Geometry:
    from .gpu.conv_cudnn import new_geometry

    stride, padding, dilation = ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1))
    return new_geometry(*(pair(argument(conv, *each)) for each in (stride, padding, dilation)))


def _random_values(node: Any) -> Tensor | None:
    """Values for a node, in channels_last; None if their shape is not known. Symbols have the values of this batch."""
    example = example_value(node)
    if example is None:
        return None
    shape = [size if isinstance(size, int) else size.node.hint for size in example.shape]
    if None in shape:
        return None
    values = torch.randn(shape, device=example.device).to(example.dtype)
    return values.contiguous(memory_format=torch.channels_last)
