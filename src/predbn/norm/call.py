"""The calls of an adapted model, seen by two hooks on the module that was given to `adapt`.

The hooks mark where a call begins and ends. A call is a pass: what strategies remember changes when it has returned
(`streams/stream.py`). A layer also has to know what its model was called with: it cannot tell how many examples its
batch has, since attention over tokens or windows puts many rows per image into the first dimension, nor that it was
replaced, or that a parent normalises without calling it.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from .adaptation import Adaptation
from .auto.composition import Composition
from .auto.mixed_classes import SeenLayer
from .auto.passes import find_composition
from .forward import entries_of
from .segments import Groups, Segments
from .streams.blocks import current_selection
from .streams.state import States
from .streams.stream import Pass
from .tracing import is_tracing

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
    """What is known about the calls of one adapted model.

    `adaptation` is what its layers share, `layers` are their names, `inputs` the arguments of the last call with a
    `TensorSpec` in place of each tensor; None if there was no call, or if it had arguments of which no random
    ones can be generated.
    """

    def __init__(self, adaptation: Adaptation, layers: Iterable[str]) -> None:
        self.adaptation = adaptation
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


class Call:
    """A running call of an adapted model. Inside it, a part that is adapted separately has its own call.

    `first` is the first tensor that the model was called with; None if there is none. `composition` is which classes
    its examples are; None if the strategy does not ask for it, or if it cannot be known. `last_seen` is the last layer
    that has compared the batch with clean data of its classes, `is_last_pass` whether this is the pass that counts.
    """

    def __init__(self, model: nn.Module, first: Tensor | None, outer: Call | None) -> None:
        self.model = model
        self.first = first
        self.outer = outer
        self.adaptation: Adaptation = model.__dict__[_ATTRIBUTE].adaptation
        self.composition: Composition | None = None
        self.last_seen: SeenLayer | None = None
        self.is_last_pass = True
        self.selection = current_selection(self.adaptation)
        self.running_pass: Pass | None = None
        self.layer_calls = 0
        self.begin_pass()
        # The following are not used in compiled graphs.
        self.depth = 1
        self.frame: FrameType | None = None
        self.exception: BaseException | None = None

    def begin_pass(self) -> None:
        """Begin a new pass; what the one before has changed is dropped."""
        if self.running_pass is not None:
            self.running_pass.end(keep=False)
        self.layer_calls = 0
        self.running_pass = self.selection.new_pass() if self.adaptation.strategy.keeps_state else None

    @property
    def examples(self) -> int | None:
        """How many examples the call has; None if unknown. In a compiled graph it is a symbol, as a number would not
        be, so that other batch sizes need no other graph."""
        return None if self.first is None else self.first.shape[0]

    def count_examples(self, x: Tensor) -> int:
        """How many examples the rows of a layer's input are, each of equally many rows that follow each other."""
        examples, rows = self.examples, x.shape[0]
        if examples is None or examples == rows:
            return rows
        return examples if examples and rows and rows % examples == 0 else rows

    def of(self, adaptation: Adaptation) -> Call | None:
        """The innermost call whose layers have this adaptation."""
        call: Call | None = self
        while call is not None and call.adaptation is not adaptation:
            call = call.outer
        return call


class _Running:
    def __init__(self) -> None:
        """Set from the start: with a default of the class, torch.compile would compile again after the first call."""
        self.current: Call | None = None


class _RunningInThread(threading.local, _Running):
    """Several threads may use one model: the replicas of DataParallel do."""


_traced, _eager = _Running(), _RunningInThread()


def running_call() -> Call | None:
    """torch.compile cannot follow what changes in a `threading.local`, but reads what eager code has set there."""
    return (torch.compiler.is_compiling() and _traced.current) or _eager.current


def _begin_call(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    first = _first_tensor(*args, *kwargs.values())
    if torch.compiler.is_compiling():
        call = _traced.current = Call(model, first, _calls_around(_traced.current, model))
        _find_composition(call, args, kwargs)
        return
    frame, outer = sys._getframe(1), _eager.current
    while outer is not None and not _is_on_stack(outer.frame, frame):
        _end(outer, keep=False)  # it ended in an interrupt, after which no hook is called
        outer = outer.outer
    if outer is not None and outer.model is model:  # the model calls itself
        outer.depth += 1
        return
    call = _eager.current = Call(model, first, outer)
    call.frame, call.exception = frame, sys.exc_info()[1]
    if not model.training:
        call.selection.check_examples(call.examples)
    calls = model.__dict__[_ATTRIBUTE]
    try:
        calls.inputs = [_spec(value) for value in args], {key: _spec(value) for key, value in kwargs.items()}
    except TypeError:
        calls.inputs = None
    _find_composition(call, args, kwargs)


def _find_composition(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Predict the batch as often as the strategy wants before the pass that counts.

    Graphs contain all passes; there the forward method is called itself, because this runs in a hook of the call that
    is recorded.
    """
    model, shared = call.model, call.adaptation
    if shared.strategy.pass_count == 1 or model.training or shared.classes is None:
        return
    predict = model.forward if is_tracing() else model

    def run_pass(composition: Composition) -> tuple[Any, SeenLayer | None]:
        call.composition, call.last_seen = composition, None
        with torch.no_grad():
            output = predict(*args, **kwargs)
        call.begin_pass()
        return output, call.last_seen

    call.is_last_pass = False
    segments = call.selection.segments
    if segments is None and shared.group is not None and call.examples is not None:
        segments = Groups(call.examples, shared.group) if call.examples % shared.group == 0 else None
    n = call.examples if segments is None else None
    passes = shared.strategy.pass_count
    call.composition = find_composition(run_pass, passes, shared.classes, segments, n, is_sync=shared.sync)
    call.is_last_pass = True


def _calls_around(call: Call | None, model: nn.Module) -> Call | None:
    """The calls around a call of this model. An error while a graph is traced leaves a call without an end."""
    outer = call
    while outer is not None and outer.model is not model:
        outer = outer.outer
    return call if outer is None else outer.outer


def _is_on_stack(frame: FrameType | None, caller: FrameType | None) -> bool:
    while caller is not None and caller is not frame:
        caller = caller.f_back
    return caller is not None


def _end_call(model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    if torch.compiler.is_compiling():
        call = _traced.current
        if call is not None:
            _traced.current = call.outer
            _end(call, keep=True, output=output)
        return
    call = _eager.current
    while call is not None and call.model is not model:  # it ended in an interrupt, and the model has gone on
        _end(call, keep=False)
        call = call.outer
    if call is None:
        return
    # The hook is called after an error as well. Only then is there an exception that was not there before.
    failed = sys.exc_info()[1] is not call.exception
    if failed and call.running_pass is not None:
        call.running_pass.is_rejected = True
    call.depth -= 1
    if call.depth:
        return
    outer = _eager.current = call.outer
    if outer is not None:
        outer.layer_calls += call.layer_calls
    _end(call, keep=True, output=output)
    if output is not None and not model.training and not is_tracing():
        model.__dict__[_ATTRIBUTE].check(model, call.layer_calls)


def _end(call: Call, *, keep: bool, output: Any = None) -> None:
    if call.running_pass is not None:
        try:
            if keep:
                call.running_pass.after(partial(_after_pass, call.adaptation), output, call.selection.segments)
        except BaseException:
            keep = False
            raise
        finally:
            call.running_pass.end(keep=keep)


def _after_pass(shared: Adaptation, states: States, output: Any, segments: Segments | None) -> None:
    shared.strategy.after_pass(states, output, shared, segments)


def _first_tensor(*inputs: Any) -> Tensor | None:
    """The first input that is a tensor of examples; it may be in a dictionary or a dataclass.

    Not in a list: that may be a list of examples, as detectors take it, or of inputs.
    """
    for value in inputs:
        for tensor in _parts(value):
            if isinstance(tensor, Tensor) and tensor.dim() > 0:
                return tensor
    return None


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    # torch.compile cannot follow the look for a dataclass
    entries = None if isinstance(value, Tensor) or torch.compiler.is_compiling() else entries_of(value)
    return (value,) if entries is None else entries.values()


def _spec(value: Any) -> Any:
    """Whatever may hold memory is not kept."""
    if isinstance(value, Tensor):
        return TensorSpec(value.shape, value.dtype, value.device)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value) in (list, tuple, dict):
        return tree_map(_spec, value)
    raise TypeError(f"cannot generate a random {type(value).__name__}")


def model_calls(model: nn.Module) -> ModelCalls | None:
    """What is known about the calls of a model; None if it is not adapted."""
    return model.__dict__.get(_ATTRIBUTE)


def watched(model: nn.Module) -> list[tuple[nn.Module, ModelCalls]]:
    """The modules in a model, itself included, whose calls are watched."""
    return [(module, module.__dict__[_ATTRIBUTE]) for module in model.modules() if _ATTRIBUTE in module.__dict__]


def watch(model: nn.Module, calls: ModelCalls) -> None:
    """Install the hooks."""
    model.__dict__[_ATTRIBUTE] = calls
    model.register_forward_pre_hook(_begin_call, prepend=True, with_kwargs=True)
    model.register_forward_hook(_end_call, always_call=True)


def unwatch(model: nn.Module) -> None:
    """Remove the hooks from a model and its parts."""
    for module, _ in watched(model):
        del module.__dict__[_ATTRIBUTE]
        _remove_hook(_begin_call, module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs)
        _remove_hook(_end_call, module._forward_hooks, module._forward_hooks_always_called)


def _remove_hook(hook: Callable[..., None], hooks: dict[int, Any], options: dict[int, bool]) -> None:
    for key in [key for key, registered in hooks.items() if registered is hook]:
        del hooks[key]
        options.pop(key, None)
