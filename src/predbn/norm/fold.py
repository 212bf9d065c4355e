"""Fold fixed statistics into the layers before them, so that serving costs no more than with the plain model."""

from __future__ import annotations

import copy
import inspect
import operator
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from torch.utils._pytree import tree_leaves

from predbn.common import AdaptationError, first_line

from .adaptation import LayerAdaptation
from .call import TensorSpec, model_calls, unwatch
from .layer import attached, detach, source_statistics
from .layers import Epilogue, epilogue_of, is_batch_norm, modules_of, named_layers, unwrapped
from .statistics import Statistics
from .strategies import Train
from .streams.api import unknown_stream_error
from .streams.registry import DEFAULT_STREAM

M = TypeVar("M", bound=nn.Module)

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED_CONVOLUTIONS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_MERGEABLE = (nn.Linear, *_CONVOLUTIONS, *_TRANSPOSED_CONVOLUTIONS)


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

    `merged` of the model's `layers` batch norm layers are part of the layer before them; `reason` is why none is.
    """

    merged: int
    layers: int
    reason: str | None = None

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"folded: {self.merged} of {self.layers} batch norm layers are merged{why}"


def fold(model: M, stream: str = DEFAULT_STREAM, *, example: Tensor | None = None) -> M:
    """A copy of the model, in `.eval()` mode, in which the current statistics are fixed for good.

    A batch norm layer that follows a convolution or linear layer is merged into it:
    weight ← weight · γ/√(σ² + eps),  bias ← (bias − μ)·γ/√(σ² + eps) + β. One that cannot be merged (it comes first, as
    in pre-activation networks, or the model cannot be traced) becomes a plain layer with these statistics, and so does
    one that changes the output when it is merged, because its weight is used elsewhere too, say. Only what was compared
    is merged: nothing, with a warning, if the model cannot be called, or with other arguments than one tensor, which
    may select a branch. `folded.predbn_fold` counts the merged layers.

    The given model is not changed; the copy is an ordinary model that can be saved, compiled and exported. Works for
    "train", "frozen", "ema", "auto_stream" and "population"; the other strategies have no statistics without a batch.

    stream    whose statistics to take
    example   a batch to compare the models on; by default a random one of the shape that the model was called with last
    """
    model = unwrapped(model)  # type: ignore[assignment]
    if not isinstance(example, Tensor | None):
        raise AdaptationError(f"example must be a tensor, but got {type(example).__name__}")
    statistics = _statistics_of_layers(model, stream)
    calls = model_calls(model)
    last = None if calls is None else calls.last
    folded = copy.deepcopy(model).eval()
    unwatch(folded)
    layers = dict(named_layers(folded))
    for name, layer in layers.items():
        detach(layer)
        if name in statistics:
            _set_statistics(layer, *statistics[name])
    try:
        merged, reason = _merge_all(folded, layers, last if example is None else example), None
    except _NotMerged as error:
        merged, reason = 0, str(error)
        warnings.warn(f"fold merged none of {len(layers)} batch norm layers: {reason}", UserWarning, stacklevel=2)
    folded.predbn_fold = Fold(merged, len(layers), reason)  # type: ignore[assignment]
    return folded


class _NotMerged(Exception):
    """Why no layer can be merged."""


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
    """A batch norm layer and the layer before it, merged or not. `current` is the layer, or what replaces it."""

    def __init__(self, model: nn.Module, predecessor: Any, layer: Any) -> None:
        epilogue = epilogue_of(type(layer))
        assert epilogue is not None
        if type(predecessor) is nn.Linear:
            merged: nn.Module = fuse_linear_bn_eval(predecessor, layer)
        else:
            merged = fuse_conv_bn_eval(predecessor, layer, type(predecessor) in _TRANSPOSED_CONVOLUTIONS)
        has_epilogue = hasattr(layer, "act") or hasattr(layer, "drop")
        replacement = _EpilogueOnly(layer, epilogue) if has_epilogue else nn.Identity()
        self._model, self._replaced = model, ((predecessor, merged), (layer, replacement))
        self.current: nn.Module = layer

    def apply(self) -> None:
        for old, new in self._replaced:
            self.current = _replace(self._model, old, new)

    def undo(self) -> None:
        for old, new in self._replaced:
            self.current = _replace(self._model, new, old)


def _merge_all(model: nn.Module, layers: dict[str, nn.Module], batch: Tensor | TensorSpec | None) -> int:
    """Merge what can be merged without changing the output; return how many layers that is."""
    arguments = inspect.signature(model.forward).parameters
    if len(arguments) > 1 or any(a.default is not a.empty or a.kind is a.VAR_POSITIONAL for a in arguments.values()):
        raise _NotMerged(
            f"its forward takes more than the batch ({', '.join(arguments)}), and any other argument may select a "
            "branch; fold a module that takes the batch only and calls this model"
        )
    if batch is None:
        raise _NotMerged("no tensor is known to compare on; predict a batch before folding, or give example=")
    predecessors = _predecessors(model)
    has_statistics = [layer for layer in layers.values() if source_statistics(layer) is not None]
    merges = [_Merge(model, predecessors[layer], layer) for layer in has_statistics if layer in predecessors]
    if not merges:
        raise _NotMerged("none of them directly follows a convolution or linear layer that only it reads")
    expected, called = _outputs(model, batch, merges)
    if not any((t.isfinite() & (t != 0)).any() for t in expected):
        raise _NotMerged(
            "the model fails on the example (by default a random batch of the shape seen last), or its outputs there "
            "are no finite numbers to compare; give another example="
        )
    merges = list(called)
    expected += called.values()

    def is_equal() -> bool:
        outputs, of_layers = _outputs(model, batch, merges)
        return _are_close([*outputs, *of_layers.values()], expected)

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
    if not count:
        raise _NotMerged("each of them changes the output when it is merged")
    return count


def _outputs(
    model: nn.Module, batch: Tensor | TensorSpec, merges: list[_Merge]
) -> tuple[list[Tensor], dict[_Merge, Tensor]]:
    """What the model gives for this batch, a random one if only its shape is known; nothing if it fails on it.

    And what each batch norm layer that is called, or its replacement, gives for the first example.
    """
    of_layers: dict[_Merge, Tensor] = {}

    def hook(merge: _Merge) -> Callable[..., None]:
        return lambda layer, args, output: of_layers.update({merge: output[:1].clone()})

    hooks = [merge.current.register_forward_hook(hook(merge)) for merge in merges]
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        x = batch.random() if isinstance(batch, TensorSpec) else batch.clone()
        try:
            output = model(x)
        except Exception:  # the model's own code: it may not work on random inputs
            output = None
        finally:
            for handle in hooks:
                handle.remove()
    return [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point()], of_layers


def _are_close(a: list[Tensor], b: list[Tensor]) -> bool:
    """Merging rounds differently, so that each layer changes the result by a few roundings."""
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape or not torch.equal(x.isfinite(), y.isfinite()):
            return False
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-3}.get(y.dtype, 0.1)
        x, y = (torch.where(t.isfinite(), t.double(), 0.0) for t in (x, y))
        if (x - y).norm() > tolerance * y.norm():
            return False
    return True


def _predecessors(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """For each batch norm layer that can be merged, the layer before it.

    Only this batch norm may read the output of that layer, both are called once, and no hook sees the value between
    them.
    """
    modules = dict[Any, nn.Module](model.named_modules(remove_duplicate=False))
    try:
        graph = _LayerTracer().trace(model)
    except Exception as error:  # tracing runs the model's own code: whatever it raises means "cannot be traced"
        raise _NotMerged(f"the model cannot be traced ({first_line(error)})") from None
    calls = Counter(modules[node.target] for node in graph.nodes if node.op == "call_module")
    pairs: dict[nn.Module, nn.Module] = {}
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
            pairs[layer] = predecessor
    return pairs


class _LayerTracer(fx.Tracer):
    """Treats every torch.nn layer, batch norm of every kind, and what contains nothing to merge, as one step."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if is_batch_norm(m) or super().is_leaf_module(m, module_qualified_name):
            return True
        return not any(is_batch_norm(part) or type(part) in _MERGEABLE for part in modules_of(m))


def _is_mergeable(predecessor: nn.Module, layer: Any) -> bool:
    """Only exact types: a subclass may do anything with its weight."""
    if type(predecessor) is nn.Linear:
        return isinstance(layer, nn.BatchNorm1d)
    if type(predecessor) in _TRANSPOSED_CONVOLUTIONS:
        return bool(predecessor.groups == 1)
    return type(predecessor) in _CONVOLUTIONS


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _set_statistics(layer: Any, statistics: Statistics, eps: float) -> None:
    """Store statistics in a plain layer, in the dtype of its buffers; if it has none, in their own."""
    layer.eps = eps
    for name, value in zip(("running_mean", "running_var"), statistics, strict=True):
        old = getattr(layer, name)
        value = value.detach().clone()
        layer._buffers[name] = value if old is None else value.to(old.device, old.dtype)


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Put one module in the place of another, under every name it has."""
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            parent, _, name = path.rpartition(".")
            owner = operator.attrgetter(parent)(model) if parent else model
            setattr(owner, name, new)
    return new
