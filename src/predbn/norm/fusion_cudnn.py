"""Moments that come out of a convolution of cuDNN, in the graph of a network (`fusion.py`)."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch import fx

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


def replace_by_cudnn(graph: fx.Graph, conv: fx.Node, moments: fx.Node) -> int:
    """Let the moments come out of cuDNN's kernel; the number of the site. The input is normalised as it was."""
    from .gpu.conv_choice import new_site

    site = new_site()
    with graph.inserting_before(conv):
        x = in_channels_last(graph, conv.args[0])
        arguments = x, conv.args[1], *map(list, geometry_of(conv)), site, *mixing_of(graph, moments)
        fused = graph.call_function(torch.ops.predbn.any_conv_moments.default, arguments)
        y, found = (graph.call_function(operator.getitem, (fused, index)) for index in range(2))
    y.meta = dict(conv.meta)
    conv.replace_all_uses_with(y)
    graph.erase_node(conv)
    replace_moments(graph, moments, found)
    return site


def geometry_of(conv: fx.Node) -> Geometry:
    from .gpu.conv_cudnn import new_geometry

    stride, padding, dilation = ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1))
    return new_geometry(*(pair(argument(conv, *each)) for each in (stride, padding, dilation)))
