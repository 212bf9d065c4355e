"""Predictions as CUDA graphs, for a GPU that waits for the host.

A small batch, or a strategy of many small steps, takes less time on a GPU than launching its kernels takes on the host.
A graph launches all kernels of a pass at once. It is recorded when a shape of input comes for the third time, and reads
from and writes to memory of its own, into which inputs are copied.

What a strategy remembers is part of the graph. The states of the stream live in the graph's memory as long as this
stream is predicted; if another one comes, they are copied out, and those of the other one in. A pass that changes what
a stream remembers in kind (its first ones do) is not recorded, nor are several streams in one batch.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from predbn.common import AdaptationError

from .adapted_layer import CHANGES, LayerAdaptation, adapted_layers
from .calibration import Calibration
from .kernels import is_tracing
from .passes import Stream, copy_states
from .stream_blocks import current_selection
from .stream_table import States

_EAGER_CALLS = 2
_WARM_UP = 2


class CapturedModel(nn.Module):
    """A model whose predictions are recorded as CUDA graphs, one for each shape of its inputs.

    On a CPU, with gradients, in training, with arguments that are not tensors, and in a graph of torch.compile, the
    model is called as it is.
    """

    def __init__(self, model: nn.Module, graphs: int) -> None:
        super().__init__()
        self.model = model
        self.graphs = graphs
        self._layers: list[tuple[nn.Module, LayerAdaptation, Calibration | None]] = []
        self._changes = -1
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._graphs: dict[Any, _Graph | None] = {}
        self._calls: dict[Any, int] = {}
        self._last: dict[Any, _Graph] = {}

    def forward(self, *inputs: Any, **others: Any) -> Any:
        if others or not _can_be_captured(self.model, inputs):
            return self.model(*inputs, **others)
        with self._lock:  # a graph has one place for inputs, states and output
            return self._predict(inputs)

    def _predict(self, inputs: tuple[Tensor, ...]) -> Any:
        streams = self._streams()
        if streams is None:
            return self.model(*inputs)
        shape = _shape(inputs)
        last = self._last.get(shape)
        if last is not None and last.has_states_of(streams):  # most calls: nothing else has to be looked at
            return last.replay(inputs, streams)
        before = tuple(_kinds(stream.states) for stream in streams)
        key = shape, before
        if key not in self._graphs:
            output = self.model(*inputs)
            is_steady = before == tuple(_kinds(stream.states) for stream in streams)
            self._calls[key] = self._calls.get(key, 0) + 1 if is_steady else 0
            if self._calls[key] >= _EAGER_CALLS:
                self._add(key, _record(self.model, inputs, streams))
            return output
        graph = self._graphs[key]
        if graph is None:
            return self.model(*inputs)
        self._last[shape] = graph
        return graph.replay(inputs, streams)

    def _add(self, key: Any, graph: _Graph | None) -> None:
        """Keep a graph, and not more than `graphs` of them."""
        del self._calls[key]
        self._graphs[key] = graph
        for old in list(self._graphs)[: -self.graphs]:
            del self._graphs[old]
            self._last.pop(old[0], None)

    def _streams(self) -> list[Stream] | None:
        """The streams that are predicted; None if a batch may hold several."""
        self._notice_changes()
        shared = {id(adaptation.shared): adaptation.shared for _, adaptation, _ in self._layers}.values()
        selections = [(current_selection(each), each.strategy.keeps_state) for each in shared]
        if any(selection.rows is not None for selection, _ in selections):
            return None
        streams = [selection.streams[0] for selection, keeps_state in selections if keeps_state]
        for stream in streams:
            stream.leave_table()
        return streams

    def _notice_changes(self) -> None:
        """Forget all graphs if layers of the model were adapted, restored or calibrated since they were recorded."""
        if self._changes == CHANGES.count:
            return
        self._changes = CHANGES.count
        layers = [(layer, adaptation, adaptation.calibration) for _, layer, adaptation in adapted_layers(self.model)]
        if list(map(_identities, layers)) != list(map(_identities, self._layers)):
            self._layers = layers
            self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """A copy records graphs of its own."""
        own = "_lock", "_graphs", "_calls", "_last"
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = threading.RLock()
        self._forget()


def _identities(values: tuple[Any, ...]) -> list[int]:
    return [id(value) for value in values]


class _Graph:
    """A recorded pass, its inputs and output, and the states that it changes, for each stream."""

    def __init__(self, graph: Any, inputs: list[Tensor], output: Any, states: list[States], owners: list[Stream]):
        self.graph, self.inputs, self.output, self.states, self.owners = graph, inputs, output, states, owners

    def has_states_of(self, streams: list[Stream]) -> bool:
        """Whether these streams are those whose states are in the memory of the graph."""
        return all(stream.states is own for stream, own in zip(streams, self.states, strict=True))

    def replay(self, inputs: tuple[Tensor, ...], streams: list[Stream]) -> Any:
        for stream in streams:
            stream.lock.acquire()
        try:
            for number, stream in enumerate(streams):
                self._bring_in(number, stream)
            for static, value in zip(self.inputs, inputs, strict=True):
                static.copy_(value)
            self.graph.replay()
            return tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, self.output)
        finally:
            for stream in streams:
                stream.lock.release()

    def _bring_in(self, number: int, stream: Stream) -> None:
        """Copy the states of a stream into the memory of the graph, unless they are there already."""
        own, owner = self.states[number], self.owners[number]
        if stream.states is own:
            return
        if owner.states is own:
            owner.states = copy_states(own)
        new, here = _tensors(stream.states), _tensors(own)
        if here:
            torch._foreach_copy_(here, new)
        stream.states, stream.is_captured, self.owners[number] = own, True, stream


def capture(model: nn.Module, graphs: int = 8) -> CapturedModel:
    """Record the predictions of a model as CUDA graphs, one for each shape of its inputs.

        fast = predbn.capture(predbn.adapt(model, "auto"))
        with torch.inference_mode():
            fast(images)

    The third call with the same shape records; later ones take as long as the GPU takes. The model itself is not
    changed, and both can be used in turn. Parameters may be changed in place, but not replaced or moved. A graph takes
    as much memory as a pass; `graphs` of them are kept.
    """
    if isinstance(graphs, bool) or not isinstance(graphs, int) or graphs < 1:
        raise AdaptationError(f"graphs={graphs!r}; it is how many shapes of inputs are kept as graphs, 1 or more")
    return CapturedModel(model, graphs)


def _record(model: nn.Module, inputs: tuple[Tensor, ...], streams: list[Stream]) -> _Graph | None:
    """Record a pass of a model; None, with a warning, if that is not possible. No stream notices it."""
    before = [stream.states for stream in streams]
    static = [value.clone(memory_format=torch.preserve_format) for value in inputs]
    states = [copy_states(of_stream) for of_stream in before]
    graph = torch.cuda.CUDAGraph()
    # Casts of parameters must happen in the graph: autocast would keep them in memory that it frees.
    is_caching = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    for stream in streams:
        stream.lock.acquire()
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # CUDA wants a few plain calls on another stream before a capture
            for _ in range(_WARM_UP):
                for stream, own in zip(streams, states, strict=True):
                    stream.states = own
                model(*static)
        torch.cuda.current_stream().wait_stream(side)
        for stream, own in zip(streams, states, strict=True):
            stream.states = own
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            output = model(*static)
            for stream, own in zip(streams, states, strict=True):
                here, new = _tensors(own), _tensors(stream.states)
                if here:
                    torch._foreach_copy_(here, new)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        warnings.warn(f"this model cannot be recorded as a CUDA graph and is called as it is: {reason}", stacklevel=3)
        return None
    finally:
        torch.set_autocast_cache_enabled(is_caching)
        for stream, of_stream in zip(streams, before, strict=True):
            stream.states = of_stream
            stream.lock.release()
    return _Graph(graph, static, output, states, list(streams))


def _can_be_captured(model: nn.Module, inputs: tuple[Any, ...]) -> bool:
    if not inputs or not all(map(_is_on_gpu, inputs)) or torch.cuda.is_current_stream_capturing():
        return False
    return not (model.training or torch.is_grad_enabled() or is_tracing())


def _is_on_gpu(value: Any) -> bool:
    return type(value) is Tensor and value.is_cuda


def _shape(inputs: tuple[Tensor, ...]) -> Any:
    described = tuple((value.shape, value.stride(), value.dtype, value.device) for value in inputs)
    cast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return described, cast, torch.is_inference_mode_enabled()


def _kinds(states: States) -> tuple[Any, ...]:
    """What a stream remembers: the kinds of tensors, and the values of everything else."""
    return tuple(
        (layer, key, (value.shape, value.dtype) if isinstance(value, Tensor) else value)
        for layer, state in states.items()
        for key, value in state.items()
    )


def _tensors(states: States) -> list[Tensor]:
    return [value for state in states.values() for value in state.values() if isinstance(value, Tensor)]
