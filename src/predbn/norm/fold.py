"""Fold fixed statistics into the layers before them, so that serving costs no more than with the plain model."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights
from torch.utils._pytree import tree_leaves, tree_map

from predbn.common import AdaptationError

from .adaptation import LayerAdaptation
from .call import TensorSpec, model_calls, unwatch
from .layer import attached, detach, source_statistics
from .layers import Epilogue, epilogue_of, is_batch_norm, named_layers, unwrapped
from .statistics import Statistics
from .strategies import Train
from .streams.api import unknown_stream_error
from .streams.registry import DEFAULT_STREAM

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


@dataclass(frozen=True)
class Fold:
    """What `fold` did, as `folded.predbn_fold`.

    `merged` of the model's `layers` batch norm layers are part of the layer before them. `verified` says whether the
    folded model was compared to the unmerged one, on random inputs of the shapes seen last.
    """

    merged: int
    layers: int
    verified: bool

    def __str__(self) -> str:
        checked = "verified" if self.verified else "not verified: the shapes of its inputs are not known"
        return f"folded: {self.merged} of {self.layers} batch norm layers are merged ({checked})"


def fold(model: M, stream: str = DEFAULT_STREAM) -> M:
    """A copy of the model, in `.eval()` mode, in which the current statistics are fixed for good.

    A batch norm layer that follows a convolution or linear layer is merged into it:
    weight ← weight · γ/√(σ² + eps),  bias ← (bias − μ)·γ/√(σ² + eps) + β. One that cannot be merged (it comes first, as
    in pre-activation networks, or the model cannot be traced) becomes a plain layer with these statistics, and so does
    one that changes the output when it is merged, because its weight is used elsewhere too, say. The model is compared
    on random inputs of the shapes that it was called with last. `folded.predbn_fold` says how many layers were merged.

    The given model is not changed; the copy is an ordinary model that can be saved, compiled and exported. Works for
    "train", "frozen", "ema", "auto_stream" and "population"; the other strategies have no statistics without a batch.
    `stream` says whose statistics to take.
    """
    model = unwrapped(model)  # type: ignore[assignment]
    statistics = _statistics_of_layers(model, stream)
    calls = model_calls(model)
    folded = copy.deepcopy(model).eval()
    unwatch(folded)
    layers = dict(named_layers(folded))
    for name, layer in layers.items():
        detach(layer)
        if name in statistics:
            _set_statistics(layer, *statistics[name])
    predecessors = _predecessors(folded)
    merges = [
        _Merge(folded, predecessors[layer], layer, *statistics[name])
        for name, layer in layers.items()
        if layer in predecessors and name in statistics
    ]
    inputs = None if calls is None else calls.inputs
    merged = _merge_all(folded, merges, inputs)
    folded.predbn_fold = Fold(merged, len(layers), inputs is not None)  # type: ignore[assignment]
    return folded


def _statistics_of_layers(model: nn.Module, stream: str) -> dict[str, tuple[Statistics, float]]:
    """The statistics and eps of each layer, by name; without layers that have none and stay as they are.

    A layer that was not called, such as an auxiliary head, keeps its source statistics.
    """
    statistics: dict[str, tuple[Statistics, float]] = {}
    missing: AdaptationError | None = None
    is_used = False
    for name, layer in named_layers(model):
        adaptation, source = attached(layer), source_statistics(layer)
        fixed, eps = source, float(layer.eps)  # type: ignore[arg-type]
        if adaptation is not None and type(adaptation.shared.strategy) is not Train:
            fixed = _fixed_statistics(adaptation, stream)
            if fixed is None:
                missing = missing or AdaptationError(
                    f"layer '{name}' has no statistics yet under strategy '{adaptation.shared.strategy}' in stream "
                    f"'{stream}'; predict a batch before folding"
                )
                fixed = source
            else:
                is_used = True
        if adaptation is not None:
            eps = adaptation.eps(layer)
        if fixed is not None:
            statistics[name] = fixed, eps
    if missing is not None and not is_used:
        raise missing
    return statistics


def _fixed_statistics(adaptation: LayerAdaptation, stream: str) -> Statistics | None:
    strategy, streams = adaptation.shared.strategy, adaptation.shared.streams
    if not strategy.can_be_folded:
        raise AdaptationError(
            f"strategy '{strategy}' computes statistics from every batch, so there are none to fold; use 'frozen', "
            "'ema' or 'population'"
        )
    if stream not in streams:
        raise unknown_stream_error(stream, adaptation.shared)
    return strategy.fixed_statistics(streams[stream].copied_states().get(adaptation.name, {}))


class _Merge:
    """A batch norm layer and the layer before it, merged or not."""

    def __init__(
        self, model: nn.Module, predecessor: nn.Module, layer: nn.Module, statistics: Statistics, eps: float
    ) -> None:
        self._model, self._predecessor, self._layer = model, predecessor, layer
        self._unmerged = predecessor.weight, predecessor.bias
        _merge(predecessor, layer, statistics, eps)
        self._merged = predecessor.weight, predecessor.bias
        has_epilogue = hasattr(layer, "act") or hasattr(layer, "drop")
        epilogue = epilogue_of(type(layer))
        assert epilogue is not None
        self._replacement = _EpilogueOnly(layer, epilogue) if has_epilogue else nn.Identity()
        self.undo()

    def apply(self) -> None:
        self._predecessor.weight, self._predecessor.bias = self._merged
        _replace(self._model, self._layer, self._replacement)

    def undo(self) -> None:
        self._predecessor.weight, self._predecessor.bias = self._unmerged
        _replace(self._model, self._replacement, self._layer)


def _merge_all(model: nn.Module, merges: list[_Merge], inputs: tuple[list[Any], dict[str, Any]] | None) -> int:
    """Merge what can be merged without changing the output; return how many layers that is."""
    expected = None if inputs is None else _random_output(model, inputs)

    def is_equal() -> bool:
        return inputs is None or _are_close(_random_output(model, inputs), expected)

    for merge in merges:
        merge.apply()
    if is_equal():
        return len(merges)
    for merge in merges:
        merge.undo()
    count = 0
    for merge in merges:
        merge.apply()
        if is_equal():
            count += 1
        else:
            merge.undo()
    return count


def _random_output(model: nn.Module, inputs: tuple[list[Any], dict[str, Any]]) -> list[Tensor] | None:
    """What the model gives for random inputs; None if it fails on them or gives no tensors."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        args, kwargs = tree_map(lambda v: v.random() if isinstance(v, TensorSpec) else v, inputs)
        try:
            output = model(*args, **kwargs)
        except Exception:  # the model's own code: random inputs may be none that it can work with
            return None
    return [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point()] or None


def _are_close(a: list[Tensor] | None, b: list[Tensor] | None) -> bool:
    """Merging rounds differently, so that each layer changes the result by a few roundings."""
    if a is None or b is None or len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape:
            return False
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-3}.get(y.dtype, 0.1)
        x, y = torch.nan_to_num(x.double()), torch.nan_to_num(y.double())
        if (x - y).norm() > tolerance * y.norm():
            return False
    return True


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
        is_known = epilogue_of(type(layer)) is not None and "forward" not in layer.__dict__
        hooked = _has_hooks(predecessor) or _has_hooks(layer)
        if called_once and is_known and _is_mergeable(predecessor, layer) and not hooked:
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
