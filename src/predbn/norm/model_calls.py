"""What an adapted model is called with, seen by hooks on the model itself.

A layer cannot tell how many examples its batch has: attention over tokens or windows puts many rows per image into the
first dimension. Nor can it tell that it was replaced, or that a parent normalises without calling it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from .kernels import is_tracing

_ATTRIBUTE = "_predbn_calls"


@dataclass(frozen=True)
class TensorSpec:
    """Shape, dtype and device of an input."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def random(self) -> Tensor:
        """Random values of this shape; zeros for integers, which are mostly indices."""
        if self.dtype.is_floating_point:
            return torch.randn(self.shape, device=self.device).to(self.dtype)
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device)


class ModelCalls:
    """The calls of one adapted model.

    `layers` are the names of its adapted layers, `inputs` the arguments of the last call with a `TensorSpec` in place
    of each tensor; None if there was no call, or if it had arguments that cannot be made up.
    """

    def __init__(self, layers: Iterable[str]) -> None:
        self.layers = tuple(layers)
        self.inputs: tuple[list[Any], dict[str, Any]] | None = None
        self.layer_calls = -1
        self.warned = False

    def check(self, model: nn.Module, layer_calls: int) -> None:
        """Warn once about layers that are no longer adapted. They are checked if the number of calls has changed."""
        if layer_calls == self.layer_calls or self.warned:
            return
        self.layer_calls = layer_calls
        modules = dict(model.named_modules(remove_duplicate=False))
        replaced = [name for name in self.layers if not hasattr(modules.get(name), "_predbn")]
        if replaced:
            reason = "are no longer"
            advice = ": replaced, as convert_sync_batchnorm and freeze_batch_norm_2d do, or restored; adapt again"
        elif layer_calls == 0:
            replaced, reason = list(self.layers), "were not called, so that nothing in this prediction was"
            advice = ": another module normalises in their place, or skips them"
        else:
            return
        self.warned = True
        names = ", ".join(replaced[:4]) + (", …" if len(replaced) > 4 else "")
        warnings.warn(f"batch norm layers ({names}) {reason} adapted{advice}", stacklevel=4)


class _Call(NamedTuple):
    """A running call of an adapted model. Inside it, a part that is adapted separately has its own call."""

    model: nn.Module
    examples: int | None
    """How many examples it has; None if unknown."""
    layer_calls: int
    """How often layers had been called when it began."""
    outer: _Call | None


class _Running:
    """The call that is running, and how often layers were called, in this and earlier calls."""

    def __init__(self) -> None:
        self.current: _Call | None = None
        self.layer_calls = 0


class _RunningInThread(threading.local, _Running):
    """Several threads may use one model: the replicas of DataParallel do."""


_traced, _eager = _Running(), _RunningInThread()


def _running() -> _Call | None:
    """torch.compile cannot follow what changes in a `threading.local`, but reads what eager code has set there."""
    return (_traced.current if torch.compiler.is_compiling() else None) or _eager.current


def count_examples(x: Tensor) -> int:
    """How many examples the rows of a layer's input belong to, each to equally many rows that follow each other."""
    running, rows = _running(), x.shape[0]
    examples = None if running is None else running.examples
    if examples is None or examples == rows:
        return rows
    return examples if examples and rows and rows % examples == 0 else rows


def is_model_training(layer: nn.Module) -> bool:
    """The mode of the model that is running, or of the layer itself if it is called alone."""
    running = _running()
    return layer.training if running is None else running.model.training


def count_layer_call() -> None:
    _eager.layer_calls += 1


def _begin_call(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    examples = _count_examples(*args, *kwargs.values())
    if torch.compiler.is_compiling():  # where an error leaves a call without an end
        _traced.current = _Call(model, examples, 0, None)
        return
    outer = _eager.current
    if outer is not None and outer.model is model:  # was interrupted
        outer = outer.outer
    _eager.current = _Call(model, examples, _eager.layer_calls, outer)
    calls = model.__dict__[_ATTRIBUTE]
    try:
        calls.inputs = [_spec(value) for value in args], {key: _spec(value) for key, value in kwargs.items()}
    except TypeError:
        calls.inputs = None


def _count_examples(*inputs: Any) -> int | None:
    """The first dimension of the first tensor, which may be in a dictionary."""
    for value in inputs:
        for tensor in value.values() if isinstance(value, dict) else (value,):
            if isinstance(tensor, Tensor) and tensor.dim() > 0:
                return tensor.shape[0]
    return None


def _spec(value: Any) -> Any:
    """Whatever may hold memory is not kept."""
    if isinstance(value, Tensor):
        return TensorSpec(value.shape, value.dtype, value.device)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value) in (list, tuple, dict):
        return tree_map(_spec, value)
    raise TypeError(f"cannot make up a {type(value).__name__}")


def _end_call(model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    if torch.compiler.is_compiling():
        _traced.current = None
        return
    ended = _eager.current
    while ended is not None and ended.model is not model:
        ended = ended.outer
    _eager.current = None if ended is None else ended.outer
    if ended is not None and output is not None and not model.training and not is_tracing():
        model.__dict__[_ATTRIBUTE].check(model, _eager.layer_calls - ended.layer_calls)


def model_calls(model: nn.Module) -> ModelCalls | None:
    """What is known about the calls of a model; None if it is not adapted."""
    return model.__dict__.get(_ATTRIBUTE)


def watched(model: nn.Module) -> list[tuple[nn.Module, ModelCalls]]:
    """The modules in a model, itself included, whose calls are watched."""
    return [(module, module.__dict__[_ATTRIBUTE]) for module in model.modules() if _ATTRIBUTE in module.__dict__]


def watch(model: nn.Module, calls: ModelCalls | None) -> None:
    """Install the hooks, or with None remove them."""
    model.__dict__.pop(_ATTRIBUTE, None)
    _remove_hook(_begin_call, model._forward_pre_hooks, model._forward_pre_hooks_with_kwargs)
    _remove_hook(_end_call, model._forward_hooks, model._forward_hooks_always_called)
    if calls is not None:
        model.__dict__[_ATTRIBUTE] = calls
        model.register_forward_pre_hook(_begin_call, prepend=True, with_kwargs=True)
        model.register_forward_hook(_end_call, always_call=True)


def _remove_hook(hook: Callable[..., None], hooks: dict[int, Any], options: dict[int, bool]) -> None:
    for key in [key for key, registered in hooks.items() if registered is hook]:
        del hooks[key]
        options.pop(key, None)
