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
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError

from .adaptation import Adaptation, LayerAdaptation
from .auto.passes import running_batch_pass
from .forward import entries_of
from .layers import modules_of
from .segments import Groups, Segments
from .streams.blocks import current_selection
from .streams.lock import is_on_stack
from .streams.stream import PassPart
from .tracing import is_tracing, runs_around_graphs

_ATTRIBUTE = "_predbn_calls"


@dataclass(frozen=True)
class TensorSpec:
    """Shape, dtype and device of an input."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: Any) -> TensorSpec | None:
        return cls(value.shape, value.dtype, value.device) if isinstance(value, Tensor) else None

    def random(self) -> Tensor:
        """Random values of this shape; zeros for integers but pixels, which are mostly indices."""
        if self.dtype.is_floating_point:
            return torch.randn(self.shape, device=self.device).to(self.dtype)
        if self.dtype == torch.uint8:
            return torch.randint(256, self.shape, dtype=self.dtype, device=self.device)
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device)


class ModelCalls:
    """What is known about the calls of one adapted model.

    `adaptation` is what its layers share, `layers` are their names, `batch` is the input with the examples, by position
    and name, if it was given to `adapt`. `last` describes the batch of the last call; None if there was no call, or if
    it had other arguments than one tensor.
    """

    def __init__(self, adaptation: Adaptation, layers: Iterable[str], batch: tuple[int, str] | None = None) -> None:
        self.adaptation = adaptation
        self.layers = tuple(layers)
        self.batch = batch
        self.last: TensorSpec | None = None
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
    """A running call of an adapted model: what is the same for all layers with this adaptation.

    Inside it, a part that is adapted separately has its own call, and so has a layer that is called on its own, whose
    `model` is None. `batches` are the tensors that may hold the examples. `is_traced` says that layers were called in a
    graph. They are not counted there: a graph would depend on the count.
    """

    def __init__(
        self,
        adaptation: Adaptation,
        batches: list[Tensor],
        outer: Call | None,
        model: nn.Module | None = None,
        frame: FrameType | None = None,
    ) -> None:
        self.adaptation = adaptation
        self.batches = batches
        self.outer = outer
        self.model = model
        self.selection = current_selection(adaptation)
        self.running_pass = self.selection.new_pass() if adaptation.strategy.keeps_state else None
        self.layer_calls = 0
        self.is_traced = is_tracing()
        # The following are not used in compiled graphs.
        self.depth = 1
        self.frame = frame
        self.exception: BaseException | None = None
        if self.running_pass is not None and frame is not None and not is_tracing():
            self.running_pass.begin(frame)

    @property
    def examples(self) -> int | None:
        """How many examples the call has; None if unknown. In a compiled graph it is a symbol, as a number would not
        be, so that other batch sizes need no other graph."""
        return self.batches[0].shape[0] if len(self.batches) == 1 else None

    @property
    def counts(self) -> bool:
        """Whether states may change now: the call may be one of several passes over a batch, or make all of them."""
        batch_pass = running_batch_pass()
        return batch_pass is None or batch_pass.counts

    def count_examples(self, layer: str, x: Tensor) -> int:
        """How many examples the rows of a layer's input are, each of equally many rows that follow each other."""
        if self.selection.segments is not None:
            return self.selection.segments.examples
        rows = x.shape[0]
        sizes = [batch.shape[0] for batch in self.batches]
        if rows in sizes:
            return rows
        known = [size for size in sizes if size]
        sizes = [size for size in known if rows and rows % size == 0]
        if not sizes and known and self.adaptation.group is not None:
            return known[0]  # which rows these are is unknown, and `segments_of` refuses them
        if len(sizes) > 1:
            raise AdaptationError(
                f"layer '{layer}' got {rows} rows, and the model inputs with {' and '.join(map(str, sizes))} rows, any "
                "of which may be the examples; name the input that holds them, as in adapt(model, …, batch='x')"
            )
        return sizes[0] if sizes else rows

    def segments_of(self, layer: str, examples: int, rows: int) -> Segments | None:
        """The streams or groups of the examples, if it is known which row belongs to which of them."""
        segments, group = self.selection.segments, self.adaptation.group
        if segments is None:
            if group is None:
                return None
            if examples % group:
                raise AdaptationError(
                    f"layer '{layer}' got {examples} examples in groups of {group}, which leaves some over: predict a "
                    "multiple of the group"
                )
            segments = Groups(examples, group)
        if rows != segments.examples and (rows % segments.examples or not self.adaptation.consecutive_rows):
            raise AdaptationError(
                f"layer '{layer}' got {rows} rows for the {segments.examples} examples of the batch, so that it is "
                "unknown which row belongs to which of its streams or groups; predict one at a time, or give "
                "adapt(model, …, consecutive_rows=True) if the rows of each example follow each other, as tokens do"
            )
        return segments

    def parts(self) -> list[PassPart]:
        """The states of the pass, one for each kind of stream; none if the strategy keeps no state."""
        return [] if self.running_pass is None else self.running_pass.parts()

    def reject(self) -> None:
        """The call must not change any state."""
        if self.running_pass is not None:
            self.running_pass.is_rejected = True

    def end(self, *, keep: bool, output: Any = None) -> None:
        """Keep what has changed in the states, or drop it."""
        if self.running_pass is None:
            return
        keep = keep and self.counts
        try:
            if keep and self.model is not None:
                after_pass = partial(self.adaptation.strategy.after_pass, shared=self.adaptation)
                self.running_pass.after(after_pass, output, self.selection.segments)
        except BaseException:
            keep = False
            raise
        finally:
            self.running_pass.end(keep=keep)


class _Running:
    def __init__(self) -> None:
        """Set from the start: with a default of the class, torch.compile would compile again after the first call."""
        self.current: Call | None = None


class _RunningInThread(threading.local, _Running):
    """Several threads may use one model: the replicas of DataParallel do."""


_traced, _eager = _Running(), _RunningInThread()


def _running_call() -> Call | None:
    """torch.compile cannot follow what changes in a `threading.local`, but reads what eager code has set there."""
    return (torch.compiler.is_dynamo_compiling() and _traced.current) or _eager.current


def call_of(adaptation: LayerAdaptation, x: Tensor) -> Call:
    """The innermost running call whose layers have the adaptation of this layer.

    A layer that is called outside of one is a call, and so a pass, by itself.
    """
    shared, innermost = adaptation.shared, _running_call()
    call = innermost
    while call is not None and call.adaptation is not shared:
        call = call.outer
    if call is None:
        call = Call(shared, [x] if innermost is None else innermost.batches, innermost)
        if innermost is None:
            call.selection.check_examples(x.shape[0])
    return call


def count_layer_call() -> nn.Module | None:
    """Count a call of a layer; the model that is called, None if the layer is called on its own."""
    call = _running_call()
    if call is None:
        return None
    if torch.compiler.is_dynamo_compiling():
        call.is_traced = True
    else:
        call.layer_calls += 1
    return call.model


@runs_around_graphs
def _begin_call(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    batches = _batches(model.__dict__[_ATTRIBUTE].batch, args, kwargs)
    if torch.compiler.is_dynamo_compiling():
        outer = _calls_around(_traced.current, model)
        _traced.current = Call(model.__dict__[_ATTRIBUTE].adaptation, batches, outer, model)
        return
    frame, outer = sys._getframe(1), _eager.current
    while outer is not None and not is_on_stack(outer.frame, frame):
        outer.end(keep=False)  # it ended in an interrupt, after which no hook is called
        outer = outer.outer
    if outer is not None and outer.model is model:  # the model calls itself
        outer.depth += 1
        return
    _end_last(model)
    call = _eager.current = Call(model.__dict__[_ATTRIBUTE].adaptation, batches, outer, model, frame)
    call.exception = sys.exc_info()[1]
    if not model.training:
        call.selection.check_examples(call.examples)
    if not is_tracing():
        values = (*args, *kwargs.values())
        model.__dict__[_ATTRIBUTE].last = TensorSpec.of(values[0]) if len(values) == 1 else None


def _calls_around(call: Call | None, model: nn.Module) -> Call | None:
    """The calls around a call of this model. An error while a graph is traced leaves a call without an end."""
    outer = call
    while outer is not None and outer.model is not model:
        outer = outer.outer
    return call if outer is None else outer.outer


@runs_around_graphs
def _end_call(model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    if torch.compiler.is_dynamo_compiling():
        call = _traced.current
        if call is not None:
            _traced.current = call.outer
            call.end(keep=True, output=output)
        return
    call = _eager.current
    while call is not None and call.model is not model:  # it ended in an interrupt, and the model has gone on
        call.end(keep=False)
        call = call.outer
    if call is None:
        return
    # The hook is called after an error as well. Only then is there an exception that was not there before.
    failed = sys.exc_info()[1] is not call.exception
    if failed:
        call.reject()
    call.depth -= 1
    if call.depth:
        return
    outer = _eager.current = call.outer
    if outer is not None:
        outer.layer_calls += call.layer_calls
    call.end(keep=True, output=output)
    if output is not None and not model.training and not call.is_traced:
        model.__dict__[_ATTRIBUTE].check(model, call.layer_calls)


def _end_last(model: nn.Module) -> None:
    """Move the hook that ends a call behind those of the user: an error in one of them is one of the call."""
    hooks = cast("OrderedDict[int, Any]", model._forward_hooks)
    if hooks[next(reversed(hooks))] is not _end_call:
        hooks.move_to_end(next(key for key, hook in hooks.items() if hook is _end_call))


def _batches(batch: tuple[int, str] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The inputs that may hold the examples: one tensor of each number of rows. They may be in a dictionary or a
    dataclass.

    Not in a list: that may be a list of examples, as detectors take it, or of inputs. A single row next to more of them
    is an option of the model.
    """
    inputs: Iterable[Any] = (*args, *kwargs.values())
    if batch is not None:
        position, name = batch
        inputs = (kwargs[name],) if name in kwargs else args[position : position + 1]
    batches: list[Tensor] = []
    for tensor in [part for value in inputs for part in _parts(value)]:
        if isinstance(tensor, Tensor) and tensor.dim() and tensor.shape[0] not in [b.shape[0] for b in batches]:
            batches.append(tensor)
    return batches if len(batches) == 1 else [tensor for tensor in batches if tensor.shape[0] != 1]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    # torch.compile cannot follow the look for a dataclass
    entries = None if isinstance(value, Tensor) or torch.compiler.is_dynamo_compiling() else entries_of(value)
    return (value,) if entries is None else entries.values()


def model_calls(model: nn.Module) -> ModelCalls | None:
    """What is known about the calls of a model; None if it is not adapted."""
    return model.__dict__.get(_ATTRIBUTE)


def watched(model: nn.Module) -> list[tuple[nn.Module, ModelCalls]]:
    """The modules in a model, itself included, whose calls are watched."""
    return [(module, module.__dict__[_ATTRIBUTE]) for module in modules_of(model) if _ATTRIBUTE in module.__dict__]


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
