"""A recorded pass through a model: of a single stream, or over rows of several.

It reads from and writes to memory of its own: inputs, what streams remember, and which row belongs to which stream.
While it is recorded the model sees this memory in place of the streams that are predicted, so that no stream notices
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from predbn.common import AdaptationError

from .adapted_layer import Adaptation, LayerAdaptation
from .joined_states import JoinedStates
from .passes import Stream, copy_states
from .recorder import CudaRecorder
from .static_rows import RowShape, StaticRows
from .static_states import StaticStates
from .statistics import Statistics
from .stream_blocks import Selection, open_blocks
from .stream_rows import StreamRows, whole_batch
from .stream_table import StageColumns, States

LastPass = tuple[Statistics | None, Statistics | None]


class CapturedPass:
    """What both kinds have in common. `examples` is to how many examples batches are filled up; None if they are not.

    `layers` are those whose drift is watched.
    """

    def __init__(
        self, model: nn.Module, layers: Sequence[LayerAdaptation], inputs: Sequence[Tensor], examples: int | None
    ) -> None:
        self._model, self._layers, self._examples = model, layers, examples
        with torch.inference_mode(False):
            self._inputs = [_memory_for(value, examples) for value in inputs]
        self._selections: list[tuple[Adaptation, Selection]] = []
        self._replay: Callable[[], None] | None = None
        self._output: Any = None
        self._last_passes: list[LastPass] = []

    def record(self, recorder: CudaRecorder, inputs: Sequence[Tensor]) -> None:
        self._load(inputs)
        self._replay, (self._output, self._last_passes) = recorder.record(self._run)
        if self._examples is None:
            return
        for value in tree_leaves(self._output):
            if isinstance(value, Tensor) and (value.dim() == 0 or len(value) != self._examples):
                raise AdaptationError(
                    f"it returns a tensor of shape {tuple(value.shape)} for {self._examples} examples, but with "
                    "pad=True all that it returns must have one row for each example"
                )

    def _run(self) -> tuple[Any, list[LastPass]]:
        """The pass itself. It may be called again and again."""
        with open_blocks(self._selections):
            output = self._model(*self._inputs)
        return output, [layer.last_pass for layer in self._layers]

    def _load(self, inputs: Sequence[Tensor]) -> None:
        for own, value in zip(self._inputs, inputs, strict=True):
            if self._examples is None or len(value) == self._examples:
                own.copy_(value)
            else:
                own.narrow(0, 0, len(value)).copy_(value)
                own.narrow(0, len(value), self._examples - len(value)).copy_(value[:1])

    def _predict(self, inputs: Sequence[Tensor]) -> Any:
        assert self._replay is not None
        self._load(inputs)
        self._replay()
        count = None if self._examples is None else len(inputs[0])
        return tree_map(lambda value: value[:count].clone() if isinstance(value, Tensor) else value, self._output)

    def _tell_layers(self, last_passes: Sequence[LastPass]) -> None:
        for layer, own in zip(self._layers, last_passes, strict=True):
            layer.last_pass = own


class SingleStreamPass(CapturedPass):
    """A pass in which each adaptation has one stream, or remembers nothing.

    The states of the stream are in the memory of the graph as long as this stream is predicted. If another one comes,
    they are copied out, and those of the other one in.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[LayerAdaptation],
        inputs: Sequence[Tensor],
        examples: int | None,
        streams: Sequence[tuple[Adaptation, Stream]],
    ) -> None:
        super().__init__(model, layers, inputs, examples)
        self._states = [copy_states(stream.states) for _, stream in streams]
        self._owners = [stream for _, stream in streams]
        self._own = [Stream() for _ in streams]
        # Kernels read tables that are in caches, which may drop them: so they are kept here.
        self._batches = [whole_batch(len(value)) for value in self._inputs if value.dim()]
        self._vectors: list[JoinedStates | None] = []
        self._selections = [(shared, Selection((own,))) for (shared, _), own in zip(streams, self._own, strict=True)]

    def _run(self) -> tuple[Any, list[LastPass]]:
        for own, states in zip(self._own, self._states, strict=True):
            own.states = states
        found = super()._run()
        self._vectors = [own.joined for own in self._own]
        for own, states in zip(self._own, self._states, strict=True):
            here, new = _tensors(states), _tensors(own.states)
            if here:
                torch._foreach_copy_(here, new)
            own.states, own.previous = {}, {}
        return found

    def has_states_of(self, streams: Sequence[Stream]) -> bool:
        """Whether these streams are those whose states are in the memory of the graph."""
        return all(stream.states is own for stream, own in zip(streams, self._states, strict=True))

    def replay(self, inputs: Sequence[Tensor], streams: Sequence[Stream]) -> Any:
        for stream in streams:
            stream.lock.acquire()
        try:
            for number, stream in enumerate(streams):
                self._bring_in(number, stream)
            output = self._predict(inputs)
            self._tell_layers(self._last_passes)
            return output
        finally:
            for stream in streams:
                stream.lock.release()

    def _bring_in(self, number: int, stream: Stream) -> None:
        """Copy the states of a stream into the memory of the graph, unless they are there already."""
        own, owner = self._states[number], self._owners[number]
        if stream.states is own:
            return
        if owner.states is own:
            owner.states = copy_states(own)
        new, here = _tensors(stream.states), _tensors(own)
        if here:
            torch._foreach_copy_(here, new)
        stream.states, stream.is_captured, self._owners[number] = own, True, stream


class MixedStreamsPass(CapturedPass):
    """A pass over rows of several streams, which are of one stage for each adaptation that remembers something."""

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[LayerAdaptation],
        inputs: Sequence[Tensor],
        examples: int | None,
        shape: RowShape,
        stages: Sequence[tuple[Adaptation, StageColumns | None]],
    ) -> None:
        """`stages` are all adaptations; None for one that remembers nothing."""
        super().__init__(model, layers, inputs, examples)
        states = [
            None if stage is None else StaticStates(shared.streams.table, stage, shape.streams)
            for shared, stage in stages
        ]
        self._states = [own for own in states if own is not None]
        self._rows = rows = StaticRows(shape, inputs[0].device, len(self._states))
        self._selections = [
            (shared, Selection((), rows, shape.rows, own)) for (shared, _), own in zip(stages, states, strict=True)
        ]
        self._cut_passes: dict[int, list[LastPass]] = {}

    def _run(self) -> tuple[Any, list[LastPass]]:
        self._rows.begin()
        try:
            return super()._run()
        finally:
            self._rows.end()

    def fill(self, rows: StreamRows, places: Sequence[Sequence[int]]) -> None:
        """Copy into the memory which rows belong to which stream, and what these remember."""
        self._rows.fill(rows, places)
        for states, own in zip(self._states, self._rows.places, strict=True):
            states.load(own)

    def replay(self, inputs: Sequence[Tensor], rows: StreamRows, places: Sequence[Sequence[int]]) -> Any:
        """The streams must be locked; `places` are their rows in the tables."""
        self.fill(rows, places)
        output = self._predict(inputs)
        streams = len(rows.names)
        for states, own in zip(self._states, self._rows.places, strict=True):
            states.store(own.narrow(0, 0, streams))
        if streams not in self._cut_passes:
            self._cut_passes[streams] = [(_cut(seen, streams), _cut(used, streams)) for seen, used in self._last_passes]
        self._tell_layers(self._cut_passes[streams])
        return output


def _memory_for(value: Tensor, examples: int | None) -> Tensor:
    """Memory for inputs of this shape and layout, with so many examples."""
    if examples is None:
        return torch.empty_like(value, memory_format=torch.preserve_format)
    return torch.empty_strided((examples, *value.shape[1:]), value.stride(), dtype=value.dtype, device=value.device)


def _cut(statistics: Statistics | None, streams: int) -> Statistics | None:
    """Those of the first streams, [S, C]; those of all, [C], as they are."""
    if statistics is None or statistics.mean.dim() == 1:
        return statistics
    return Statistics(*(t.narrow(0, 0, streams) for t in statistics))


def _tensors(states: States) -> list[Tensor]:
    return [value for state in states.values() for value in state.values() if isinstance(value, Tensor)]
