"""Fold fixed statistics into the layers before them, for serving at the cost of the plain model."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from predbn.common import AdaptationError

from .kinds import Tail, is_batch_norm, named_layers, tail_of, unwrapped
from .layer import HOME, Slot, fit, slot_of, source_statistics
from .statistics import Statistics

M = TypeVar("M", bound=nn.Module)

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class _Rest(nn.Module):
    """What is left of a folded layer: what it did after normalising."""

    def __init__(self, layer: nn.Module, tail: Tail) -> None:
        super().__init__()
        self.tail = tail
        for name in ("drop", "act"):
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self, x)


def fold(model: M, stream: str = HOME) -> M:
    """A copy of the model, in `.eval()` mode, in which the statistics that stand are fixed for good.

    A batch norm that follows a convolution or linear layer of its own is merged into it:
    weight ← weight · γ/√(σ² + eps),  bias ← (bias − μ)·γ/√(σ² + eps) + β. One that cannot be merged (it
    comes first, as in pre-activation networks, or the model cannot be traced) becomes a plain layer
    with these statistics. The given model is left as it is; the copy is an ordinary model that can be
    saved, compiled and exported. Works for "train", "frozen", "ema" and "population"; `stream` says
    whose statistics to take.
    """
    _check(model, stream)
    folded = copy.deepcopy(unwrapped(model)).eval()
    layers = list(named_layers(folded))
    predecessors = _predecessors(folded)
    for name, layer in layers:
        statistics, eps = _fixed(name, layer, slot_of(layer), stream)
        if statistics is None:
            continue
        fit(layer, None)
        before = predecessors.get(layer)
        tail = tail_of(type(layer))
        if before is not None and tail is not None:
            _merge(before, layer, statistics, eps)
            _replace(folded, layer, _rest(layer, tail))
        else:
            _bake(layer, statistics, eps)
    return folded  # type: ignore[return-value]


def _check(model: nn.Module, stream: str) -> None:
    for name, layer in named_layers(model):
        slot = slot_of(layer)
        if slot is not None and slot.adaptation.strategy.varies:
            strategy = slot.adaptation.strategy
            raise AdaptationError(
                f"strategy '{strategy}' computes statistics from every batch, so there are none to fold; use 'frozen', "
                "'ema' or 'population'"
            )
        _fixed(name, layer, slot, stream)


def _fixed(name: str, layer: nn.Module, slot: Slot | None, stream: str) -> tuple[Statistics | None, float]:
    """The statistics and eps that stand for a layer; None where it has none and goes on as it is."""
    source = source_statistics(layer)
    if slot is None:
        return source, float(layer.eps)  # type: ignore[arg-type]
    strategy, streams = slot.adaptation.strategy, slot.adaptation.streams
    if strategy.is_identity:
        return source, slot.eps(layer)
    if stream not in streams:
        raise AdaptationError(f"there is no stream '{stream}'; there are {', '.join(streams)}")
    statistics = strategy.settled(streams[stream].state(slot.name))
    if statistics is None:
        raise AdaptationError(
            f"layer '{name}' has no statistics yet under strategy '{strategy}' in stream '{stream}'; predict a batch "
            "before folding"
        )
    return statistics, slot.eps(layer)


def _predecessors(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """For each batch norm that can be merged, the layer before it: one whose only reader is that batch
    norm, both called once, with no hook to see the value between them. Empty for a model that torch.fx
    cannot trace."""
    try:
        graph = _LayerTracer().trace(model)
    except Exception:  # tracing runs the model's own code: whatever it raises means "cannot be traced"
        return {}
    modules = dict(model.named_modules(remove_duplicate=False))
    calls = Counter(modules[node.target] for node in graph.nodes if node.op == "call_module")
    found: dict[nn.Module, nn.Module] = {}
    for node in graph.nodes:
        if node.op != "call_module" or not is_batch_norm(modules[node.target]):
            continue
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or source.op != "call_module" or len(source.users) > 1:
            continue
        before, layer = modules[source.target], modules[node.target]
        once = calls[before] == 1 and calls[layer] == 1
        if once and _mergeable(before, layer) and not _hooked(before) and not _hooked(layer):
            found[layer] = before
    return found


class _LayerTracer(fx.Tracer):
    """Sees batch norm layers of every kind, and every torch.nn layer, as one step."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_batch_norm(m) or super().is_leaf_module(m, module_qualified_name)


def _mergeable(before: nn.Module, layer: Any) -> bool:
    """Exactly the plain layer types: a subclass may do anything with its weight."""
    if type(before) is nn.Linear:
        return isinstance(layer, nn.BatchNorm1d)
    if type(before) in _TRANSPOSED:
        return bool(before.groups == 1)
    return type(before) in _CONVOLUTIONS


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _merge(before: Any, layer: Any, statistics: Statistics, eps: float) -> None:
    mean, var = (t.to(before.weight.device, torch.float64) for t in statistics)
    gamma, beta = (None if t is None else t.detach().double() for t in (layer.weight, layer.bias))
    weight, bias = before.weight.detach().double(), before.bias
    bias = None if bias is None else bias.detach().double()
    if type(before) is nn.Linear:
        gamma = torch.ones_like(mean) if gamma is None else gamma
        beta = torch.zeros_like(mean) if beta is None else beta
        bias = torch.zeros_like(mean) if bias is None else bias
        fused = fuse_linear_bn_weights(weight, bias, mean, var, eps, gamma, beta)
    else:
        fused = fuse_conv_bn_weights(weight, bias, mean, var, eps, gamma, beta, type(before) in _TRANSPOSED)
    dtype, trainable = before.weight.dtype, before.weight.requires_grad
    format_ = _memory_format(before.weight)
    new_weight = fused[0].detach().to(dtype).contiguous(memory_format=format_)
    before.weight = nn.Parameter(new_weight, requires_grad=trainable)
    before.bias = nn.Parameter(fused[1].detach().to(dtype), requires_grad=trainable)


def _memory_format(weight: Tensor) -> torch.memory_format:
    if weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


def _rest(layer: nn.Module, tail: Tail) -> nn.Module:
    return _Rest(layer, tail) if hasattr(layer, "act") or hasattr(layer, "drop") else nn.Identity()


def _bake(layer: Any, statistics: Statistics, eps: float) -> None:
    """A plain layer with other statistics. They keep single precision where the layer's own would not."""
    layer.eps = eps
    for name, value in zip(("running_mean", "running_var"), statistics, strict=True):
        old = getattr(layer, name)
        value = value.detach().clone()
        layer._buffers[name] = value if old is None else value.to(old.device, old.dtype)


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put one module in another's place under every name it has."""
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            parent, _, name = path.rpartition(".")
            owner = operator.attrgetter(parent)(model) if parent else model
            setattr(owner, name, new)
