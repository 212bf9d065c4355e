"""The graph of a network in which statistics come out of convolutions, and normalisation goes into the next one.

torch.compile records an adapted layer as operators for the moments of its input and what the strategy makes of them
(`gpu/operators.py`), and x·scale + shift, or batch norm, with the result. Where the input comes from a convolution, the
moments can come from the kernel of that convolution: cuDNN's (`fusion_cudnn.py`), or ours for a 1×1 convolution
(`gpu/conv.py`). Where a 1×1 convolution is the only one that reads the normalised values, with or without ReLU, ours
can normalise them itself. The graph is changed before gradients are considered, and only where there are none; whatever
is not supported stays as it is, and the reason is kept for `describe`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from . import kernels
from .fusion_choice import fastest_way
from .fusion_cudnn import can_use_cudnn, replace_by_cudnn
from .fx_nodes import (
    argument,
    example_value,
    in_channels_last,
    is_channels_last,
    is_conv,
    is_given,
    is_mixed,
    is_row,
    layer_of,
    mixing_of,
    only_user,
    pair,
    replace_moments,
    replace_parts,
)
from .gpu import conv_operators, operators

Target = Any
_RELU: tuple[Target, ...] = (F.relu, torch.relu, torch.ops.aten.relu, torch.ops.aten.relu.default)
_READS: tuple[Target, ...] = (
    getattr, torch.cat, torch.conv2d, torch.ops.aten.batch_norm, torch.ops.predbn.scale_and_shift.default,
    torch.ops.predbn.moments.default, torch.ops.predbn.mixed_moments.default, torch.ops.predbn.bounded_moments.default,
)  # fmt: skip
"""What may use the input of a layer whose normalisation is computed later than it was: nothing that writes."""
_UNKNOWN = "not compiled yet, or its strategy does not look at the batch"
_SEPARATE_IS_FASTER = "separate kernels are faster"
_OPERATORS = operators.__name__, conv_operators.__name__
"""Importing these modules registers the operators."""
_OF_BATCH = torch.ops.predbn.moments.default, torch.ops.predbn.mixed_moments.default
_OF_EXAMPLES = torch.ops.predbn.bounded_moments.default
_NORM = torch.ops.aten.batch_norm, torch.ops.predbn.scale_and_shift.default


@dataclass
class LayerFusion:
    """What became of one layer: the number of the convolution that computes its statistics, and of the one that
    normalises with them, or the reason why there is none."""

    statistics: int | str = _UNKNOWN
    normalisation: int | str = _UNKNOWN

    def __str__(self) -> str:
        of_statistics = self._reason(self.statistics, is_normalisation=False)
        of_normalisation = self._reason(self.normalisation, is_normalisation=True)
        if of_statistics is None and of_normalisation is None:
            return "statistics and normalisation"
        if of_statistics is None:
            return f"statistics (normalisation is not: {of_normalisation})"
        if of_normalisation is None:
            return f"normalisation (statistics are not: {of_statistics})"
        return f"no: {of_statistics}"

    def _reason(self, where: int | str, *, is_normalisation: bool) -> str | None:
        if isinstance(where, str):
            return where
        from .gpu.conv_choice import SITES

        way = SITES[where].way
        if way is None:
            return "not called yet"
        is_fused = way.is_normalised if is_normalisation else way.has_sums
        return None if is_fused else _SEPARATE_IS_FASTER


@dataclass
class Fusion:
    """What became of each layer of a compiled model, by its name."""

    layers: dict[str, LayerFusion] = field(default_factory=dict)

    def of(self, name: str) -> LayerFusion:
        return self.layers.setdefault(name, LayerFusion())


@dataclass
class _Candidate:
    """A convolution, and the neighbours that it can be fused with.

    `reason` is why it cannot be one of our 1×1 convolutions; None if it can.
    """

    moments: fx.Node | None = None
    norm: fx.Node | None = None
    relu: bool = False
    reason: str | None = None


def fuse(module: fx.GraphModule, report: Fusion) -> None:
    """Change the graph of a module, and write down which layers are fused."""
    graph = module.graph
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node.target is getattr and not node.users:
            graph.erase_node(node)  # what a layer has asked about its input, such as its device
    candidates: dict[fx.Node, _Candidate] = {}
    is_last = any(is_channels_last(node) for node in graph.nodes if is_conv(node))
    for node in graph.nodes:
        if node.op == "call_function" and node.target in (*_OF_BATCH, _OF_EXAMPLES):
            found = _find_source(node, candidates, is_last)
            if found is not None:
                report.of(layer_of(node)).statistics = found
        elif node.op == "call_function" and node.target in _NORM:
            found = _find_next(node, candidates, is_last)
            if found is not None:
                report.of(layer_of(node)).normalisation = found
    for conv, candidate in candidates.items():
        way = _fastest_way(conv, candidate)
        if way == "cudnn":
            _take_cudnn(graph, conv, candidate, report)
        elif way == "fused":
            _take_ours(graph, conv, candidate, report)
        else:
            _leave(candidate, report)
    if candidates:
        graph.lint()
        module.recompile()


def _find_source(node: fx.Node, candidates: dict[fx.Node, _Candidate], is_last: bool) -> str | None:
    """Note the convolution that the moments of this node can come from; otherwise tell why there is none."""
    source = node.args[0]
    if not is_conv(source):
        return "its input is not the output of a convolution"
    reason = _conv_reason(source, is_last)
    is_of_batch = node.target in _OF_BATCH
    if node.target is _OF_BATCH[0] and node.args[1] != 1:
        return "its examples are in groups"
    if is_mixed(node) and not all(map(is_given, node.args[1:])):
        return "its parameters are computed"
    if source in candidates and candidates[source].moments is not None:
        return "another layer has the same input"
    if reason is None or (is_of_batch and is_last and can_use_cudnn(source)):
        candidate = candidates.setdefault(source, _Candidate())
        candidate.moments, candidate.reason = node, reason
        return None
    return reason


def _find_next(node: fx.Node, candidates: dict[fx.Node, _Candidate], is_last: bool) -> str | None:
    """Note the convolution that can normalise its input as this node does; otherwise tell why there is none."""
    x, *rows = node.args
    is_training = node.target is _NORM[0] and node.args[5]
    if is_training or any(isinstance(t, fx.Node) and not is_row(t) for t in rows):
        return "its statistics are not single-precision rows"
    if not isinstance(x, fx.Node) or any(user.target not in _READS for user in x.users):
        return "its input is used elsewhere"
    last, relu = node, False
    following = only_user(node)
    if following is not None and following.op == "call_function" and following.target in _RELU:
        last, relu = following, True
    conv = only_user(last)
    if not is_conv(conv) or conv.args[0] is not last:
        return "no convolution follows alone"
    reason = _conv_reason(conv, is_last)
    if reason is None:
        candidate = candidates.setdefault(conv, _Candidate())
        candidate.norm, candidate.relu = node, relu
    return reason


def _fastest_way(conv: fx.Node, candidate: _Candidate) -> str:
    from .gpu.conv import BATCH, EXAMPLES, NO_SUMS

    moments = candidate.moments
    wanted = NO_SUMS if moments is None else BATCH if moments.target in _OF_BATCH else EXAMPLES
    return fastest_way(
        conv,
        wanted,
        has_cudnn=wanted == BATCH and can_use_cudnn(conv),
        has_ours=candidate.reason is None,
        is_normalised=candidate.norm is not None,
        relu=candidate.relu,
    )


def _take_cudnn(graph: fx.Graph, conv: fx.Node, candidate: _Candidate, report: Fusion) -> None:
    """Let cuDNN compute the moments. The input is normalised before."""
    assert candidate.moments is not None
    report.of(layer_of(candidate.moments)).statistics = replace_by_cudnn(graph, conv, candidate.moments)
    if candidate.norm is not None:
        report.of(layer_of(candidate.norm)).normalisation = _SEPARATE_IS_FASTER


def _leave(candidate: _Candidate, report: Fusion) -> None:
    """Write down why nothing is fused with a convolution."""
    if candidate.moments is not None:
        report.of(layer_of(candidate.moments)).statistics = candidate.reason or _SEPARATE_IS_FASTER
    if candidate.norm is not None:
        report.of(layer_of(candidate.norm)).normalisation = _SEPARATE_IS_FASTER


def _take_ours(graph: fx.Graph, conv: fx.Node, candidate: _Candidate, report: Fusion) -> None:
    """Replace a 1×1 convolution and its neighbours by one of ours."""
    from .gpu.conv_choice import new_site

    site, (x, weight, *_), stride = new_site(), conv.args, pair(argument(conv, 3, "stride", 1))[0]
    prologue: tuple[Any, ...] = None, None, False
    with graph.inserting_before(conv):
        if candidate.norm is not None:
            x, *rows = _scale_and_shift(graph, candidate.norm)
            prologue = *rows, candidate.relu
            report.of(layer_of(candidate.norm)).normalisation = site
        else:
            x = in_channels_last(graph, x)
        name, mixing = "conv", ()
        if candidate.moments is not None:
            report.of(layer_of(candidate.moments)).statistics = site
            name = "conv_example_sums"
            if candidate.moments.target in _OF_BATCH:
                name, mixing = "conv_moments", mixing_of(graph, candidate.moments)
        target = getattr(torch.ops.predbn, name).default
        fused = graph.call_function(target, (x, weight, stride, *prologue, site, *mixing))
        parts = [fused]
        if candidate.moments is not None:
            count = 2 if name == "conv_moments" else 3
            parts = [graph.call_function(operator.getitem, (fused, index)) for index in range(count)]
    parts[0].meta = dict(conv.meta)
    conv.replace_all_uses_with(parts[0])
    graph.erase_node(conv)
    for node in (parts[0], fused):
        node.meta.setdefault("nn_module_stack", conv.meta.get("nn_module_stack"))
    if candidate.norm is not None:
        _erase_unused(graph, candidate.norm)
    if candidate.moments is not None:
        if name == "conv_moments":
            replace_moments(graph, candidate.moments, parts[1])
        else:
            replace_parts(graph, candidate.moments, _bounded(graph, candidate.moments, *parts))


def _scale_and_shift(graph: fx.Graph, norm: fx.Node) -> tuple[Any, ...]:
    """x, scale and shift of a node that normalises, x·scale + shift."""
    if norm.target is not _NORM[0]:
        return norm.args
    x, weight, bias, mean, var, _, _, eps = norm.args[:8]
    scale = graph.call_function(torch.rsqrt, (graph.call_function(operator.add, (var, eps)),))
    if weight is not None:
        scale = graph.call_function(operator.mul, (scale, weight))
    shift = graph.call_function(operator.neg, (graph.call_function(operator.mul, (mean, scale)),))
    if bias is not None:
        shift = graph.call_function(operator.add, (shift, bias))
    return x, scale, shift


def _bounded(graph: fx.Graph, node: fx.Node, y: fx.Node, sums: fx.Node, is_bad: fx.Node) -> list[fx.Node]:
    """What `bounded_moments` returns, from the sums of examples."""
    with graph.inserting_before(node):
        rows = graph.call_function(operator.mul, tuple(graph.call_method("size", (y, dim)) for dim in (2, 3)))
        target = torch.ops.predbn.bounded_moments_of_sums.default
        found = graph.call_function(target, (sums, is_bad, *node.args[1:], rows))
        return [graph.call_function(operator.getitem, (found, index)) for index in range(2)]


def _erase_unused(graph: fx.Graph, norm: fx.Node) -> None:
    for user in list(norm.users):
        graph.erase_node(user)
    graph.erase_node(norm)


def _conv_reason(conv: fx.Node, is_last: bool) -> str | None:
    """Why a convolution cannot be one of ours; None if it can."""
    x, weight, y = (example_value(node) for node in (*conv.args[:2], conv))
    if x is None or weight is None or y is None or x.dim() != 4:
        return "its convolution is not known well enough"
    kernel = tuple(weight.shape[2:])
    checks = (
        (kernel != (1, 1), f"the convolution is {'×'.join(map(str, kernel))}"),
        (argument(conv, 2, "bias", None) is not None, "the convolution has a bias"),
        (argument(conv, 6, "groups", 1) != 1, "the convolution has groups"),
        (pair(argument(conv, 4, "padding", 0)) != (0, 0), "the convolution pads its input"),
        (pair(argument(conv, 3, "stride", 1)) not in ((1, 1), (2, 2)), "the convolution has another stride"),
        (y.requires_grad, "gradients are computed"),
        (not kernels.can_fuse(x), "fused kernels need a GPU with Triton, and half precision"),
        (not x.dtype == weight.dtype == y.dtype, "the convolution changes the precision"),
        (not is_last, "the model is not in channels_last"),
    )
    return next((reason for is_true, reason in checks if is_true), None)
