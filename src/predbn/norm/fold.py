"""Fold fixed statistics into the layers before them, so that serving costs no more than with the plain model."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from predbn.common import AdaptationError

from .adapted_layer import DEFAULT_STREAM, LayerAdaptation, attached, detach, source_statistics
from .layers import Epilogue, epilogue_of, is_batch_norm, named_layers, unwrapped
from .passes import unhook_passes
from .statistics import Statistics
from .streams import unknown_stream_error

M = TypeVar("M", bound=nn.Module)

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED_CONVOLUTIONS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class _EpilogueOnly(nn.Module):
    """Replaces a layer that was merged into the one before it: what it did after normalising."""

    def __init__(self, layer: nn.Module, epilogue: Epilogue) -> None:
        super().__init__()
        self.epilogue = epilogue
        for name in ("drop", "act"):
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))

    def forward(self, x: Tensor) -> Tensor:
        return self.epilogue(self, x)


def fold(model: M, stream: str = DEFAULT_STREAM) -> M:
    """A copy of the model, in `.eval()` mode, in which the current statistics are fixed for good.

    A batch norm layer that follows a convolution or linear layer is merged into it:
    weight ← weight · γ/√(σ² + eps),  bias ← (bias − μ)·γ/√(σ² + eps) + β. One that cannot be merged (it comes first, as
    in pre-activation networks, or the model cannot be traced) becomes a plain layer with these statistics. The given
    model is not changed; the copy is an ordinary model that can be saved, compiled and exported. Works for "train",
    "frozen", "ema", "auto_stream" and "population"; the other strategies have no statistics without a batch. `stream`
    says whose statistics to take.
    """
    _check_foldable(model, stream)
    folded = copy.deepcopy(unwrapped(model)).eval()
    unhook_passes(folded)
    layers = list(named_layers(folded))
    predecessors = _predecessors(folded)
    for name, layer in layers:
        statistics, eps = _current_statistics(name, layer, attached(layer), stream)
        if statistics is None:
            continue
        detach(layer)
        predecessor, epilogue = predecessors.get(layer), epilogue_of(type(layer))
        if predecessor is not None and epilogue is not None:
            _merge(predecessor, layer, statistics, eps)
            has_epilogue = hasattr(layer, "act") or hasattr(layer, "drop")
            _replace(folded, layer, _EpilogueOnly(layer, epilogue) if has_epilogue else nn.Identity())
        else:
            _set_statistics(layer, statistics, eps)
    return folded  # type: ignore[return-value]


def _check_foldable(model: nn.Module, stream: str) -> None:
    for name, layer in named_layers(model):
        adaptation = attached(layer)
        if adaptation is not None and not adaptation.shared.strategy.can_be_folded:
            raise AdaptationError(
                f"strategy '{adaptation.shared.strategy}' computes statistics from every batch, so there are none to "
                "fold; use 'frozen', 'ema' or 'population'"
            )
        _current_statistics(name, layer, adaptation, stream)


def _current_statistics(
    name: str, layer: nn.Module, adaptation: LayerAdaptation | None, stream: str
) -> tuple[Statistics | None, float]:
    """The statistics and eps that a layer uses now; None for a layer without any, which stays as it is."""
    source = source_statistics(layer)
    if adaptation is None:
        return source, float(layer.eps)  # type: ignore[arg-type]
    strategy, streams = adaptation.shared.strategy, adaptation.shared.streams
    if strategy.is_identity:
        return source, adaptation.eps(layer)
    if stream not in streams:
        raise unknown_stream_error(stream, adaptation.shared)
    statistics = strategy.fixed_statistics(streams[stream].state(adaptation.name))
    if statistics is None:
        raise AdaptationError(
            f"layer '{name}' has no statistics yet under strategy '{strategy}' in stream '{stream}'; predict a batch "
            "before folding"
        )
    return statistics, adaptation.eps(layer)


def _predecessors(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """For each batch norm layer that can be merged, the layer before it.

    Only this batch norm may read the output of that layer, both are called once, and no hook sees the value between
    them. Empty for a model that torch.fx cannot trace.
    """
    try:
        graph = _LayerTracer().trace(model)
    except Exception:  # tracing runs the model's own code: whatever it raises means "cannot be traced"
        return {}
    modules = dict(model.named_modules(remove_duplicate=False))
    calls = Counter(modules[node.target] for node in graph.nodes if node.op == "call_module")
    predecessors: dict[nn.Module, nn.Module] = {}
    for node in graph.nodes:
        if node.op != "call_module" or not is_batch_norm(modules[node.target]):
            continue
        input_node = node.args[0] if node.args else None
        if not isinstance(input_node, fx.Node) or input_node.op != "call_module" or len(input_node.users) > 1:
            continue
        predecessor, layer = modules[input_node.target], modules[node.target]
        called_once = calls[predecessor] == 1 and calls[layer] == 1
        if called_once and _is_mergeable(predecessor, layer) and not _has_hooks(predecessor) and not _has_hooks(layer):
            predecessors[layer] = predecessor
    return predecessors


class _LayerTracer(fx.Tracer):
    """Treats every torch.nn layer, and batch norm layers of every kind, as one step."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_batch_norm(m) or super().is_leaf_module(m, module_qualified_name)


def _is_mergeable(predecessor: nn.Module, layer: Any) -> bool:
    """Only exact types: a subclass may do anything with its weight."""
    if type(predecessor) is nn.Linear:
        return isinstance(layer, nn.BatchNorm1d)
    if type(predecessor) in _TRANSPOSED_CONVOLUTIONS:
        return bool(predecessor.groups == 1)
    return type(predecessor) in _CONVOLUTIONS


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _merge(predecessor: Any, layer: Any, statistics: Statistics, eps: float) -> None:
    mean, var = (t.to(predecessor.weight.device, torch.float64) for t in statistics)
    gamma, beta = (None if t is None else t.detach().double() for t in (layer.weight, layer.bias))
    weight, bias = predecessor.weight.detach().double(), predecessor.bias
    bias = None if bias is None else bias.detach().double()
    if type(predecessor) is nn.Linear:
        gamma = torch.ones_like(mean) if gamma is None else gamma
        beta = torch.zeros_like(mean) if beta is None else beta
        bias = torch.zeros_like(mean) if bias is None else bias
        fused = fuse_linear_bn_weights(weight, bias, mean, var, eps, gamma, beta)
    else:
        transposed = type(predecessor) in _TRANSPOSED_CONVOLUTIONS
        fused = fuse_conv_bn_weights(weight, bias, mean, var, eps, gamma, beta, transposed)
    dtype, trainable = predecessor.weight.dtype, predecessor.weight.requires_grad
    format_ = _memory_format(predecessor.weight)
    new_weight = fused[0].detach().to(dtype).contiguous(memory_format=format_)
    predecessor.weight = nn.Parameter(new_weight, requires_grad=trainable)
    predecessor.bias = nn.Parameter(fused[1].detach().to(dtype), requires_grad=trainable)


def _memory_format(weight: Tensor) -> torch.memory_format:
    if weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


def _set_statistics(layer: Any, statistics: Statistics, eps: float) -> None:
    """Store statistics in a plain layer, in the dtype of its buffers; if it has none, in their own."""
    layer.eps = eps
    for name, value in zip(("running_mean", "running_var"), statistics, strict=True):
        old = getattr(layer, name)
        value = value.detach().clone()
        layer._buffers[name] = value if old is None else value.to(old.device, old.dtype)


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put one module in the place of another, under every name it has."""
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            parent, _, name = path.rpartition(".")
            owner = operator.attrgetter(parent)(model) if parent else model
            setattr(owner, name, new)
