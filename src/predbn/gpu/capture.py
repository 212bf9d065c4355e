"""Predictions as CUDA graphs, for a GPU that waits for the host.

A small batch, or a strategy of many small steps, takes less time on a GPU than launching its kernels takes on the host.
A graph launches all kernels of a pass at once. It is recorded when a shape of input comes for the second time, and
reads from and writes to memory of its own: inputs, what streams remember, and which row belongs to which stream. These
are copied in before a replay, and what the streams remember is copied out after it.

A pass that changes what a stream remembers in kind (its first ones do) is not recorded, nor one whose streams remember
different kinds of things.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from predbn.common import AdaptationError
from predbn.norm import (
    VERSION,
    Adaptation,
    LayerAdaptation,
    Packed,
    Pass,
    PassPart,
    Selection,
    Statistics,
    Stream,
    StreamSegments,
    Wrapper,
    adapted_layers,
    current_selection,
    is_tracing,
    open_blocks,
    pack,
    stack,
)

from .graphs import CudaGraphRecorder
from .static_segments import SegmentShape, StaticSegments

_MIN_USES = 2
"""A shape is recorded when it comes for this time."""


class CapturedModel(Wrapper):
    """A model whose predictions are recorded as CUDA graphs, one for each shape of its inputs.

    On a CPU, with gradients, in training, with arguments that are not tensors, and in a graph of torch.compile, the
    model is called as it is. Of all other predictions, `replays` counts those that were replayed, and `calls` those
    that were not.
    """

    def __init__(self, model: nn.Module, graphs: int, pad: bool) -> None:
        super().__init__()
        self.model, self.graphs, self.pad = model, graphs, pad
        self.replays = self.calls = 0
        self._begin()

    def _begin(self) -> None:
        self._lock, self._recorder, self._has_warned = threading.RLock(), CudaGraphRecorder(), False
        self._version = -1
        self._layers: list[LayerAdaptation] = []
        self._forget()

    def _forget(self) -> None:
        self._graphs: dict[Any, _Graph | None] = {}
        self._uses: Counter[Any] = Counter()

    def forward(self, *inputs: Any, **others: Any) -> Any:
        if others or not inputs or self.model.training or torch.is_grad_enabled() or is_tracing():
            return self.model(*inputs, **others)
        if not self._recorder.can_record(inputs):
            return self.model(*inputs)
        device = inputs[0].device
        # A graph has one place for inputs, states and output, and is recorded on the device of the model.
        with self._lock, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return self._predict(inputs)

    def _predict(self, inputs: tuple[Tensor, ...]) -> Any:
        self._notice_changes()
        batch = _Batch.of(inputs, self._layers, pad=self.pad)
        if batch is None:
            return self._call(inputs)
        with batch.locked(sys._getframe()):
            key = batch.key()
            if key is None:
                return self._call(inputs)
            graph = self._graphs.get(key)
            if graph is None:
                output = self._call(inputs)
                if key not in self._graphs and self._has_room(key) and batch.key() == key:
                    self._graphs[key] = self._recorded(batch)
                return output
            self._uses[key] += 1
            self.replays += 1
            return graph.replay(batch)

    def _call(self, inputs: tuple[Tensor, ...]) -> Any:
        self.calls += 1
        return self.model(*inputs)

    def _has_room(self, key: Any) -> bool:
        """Count a call without a graph; whether there is to be one now.

        Recording takes longer than a prediction: the graph that is used least is dropped only for a shape that comes
        more than twice as often.
        """
        self._uses[key] += 1
        if self._uses[key] < _MIN_USES:
            return False
        if len(self._graphs) >= self.graphs:
            least = min(self._graphs, key=self._uses.__getitem__)
            if self._uses[key] <= 2 * self._uses[least]:
                return False
            del self._graphs[least]
        return True

    def _recorded(self, batch: _Batch) -> _Graph | None:
        """A graph of the pass; None, with a warning, if it cannot be recorded. Layers do not notice it."""
        before = [(layer, layer.seen, layer.used) for layer in self._layers]
        try:
            return _Graph(self.model, self._layers, batch, self._recorder)
        except (RuntimeError, AdaptationError) as error:
            if not self._has_warned:
                self._has_warned = True
                reason = str(error).splitlines()[0]
                warnings.warn(
                    f"this model cannot be recorded as a CUDA graph and is called as it is: {reason}", stacklevel=5
                )
            return None
        finally:
            for layer, seen, used in before:
                layer.seen, layer.used = seen, used

    def _notice_changes(self) -> None:
        """Forget all graphs if layers of any model were adapted, restored or calibrated since they were recorded."""
        if self._version != VERSION.count:
            self._version = VERSION.count
            self._layers = [layer for _, _, layer in adapted_layers(self.model)]
            self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """A copy records graphs of its own."""
        own = "_lock", "_recorder", "_graphs", "_uses", "_layers"
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._begin()


def capture(model: nn.Module, graphs: int = 8) -> CapturedModel:
    """Record the predictions of a model as CUDA graphs, one for each shape of its inputs.

        fast = predbn.capture(predbn.AutoPredictor(model))
        with torch.inference_mode():
            fast(images)

    The second call with the same shape records; later ones take as long as the GPU takes. The model itself is not
    changed, and both can be used in turn. Parameters may be changed in place, but not replaced or moved. `graphs` of
    them are kept, those that are used most; they share the memory of a pass. With `predbn.streams`, a shape is also how
    many streams there are, and how many rows the largest has (rounded up to a power of two).
    """
    if not isinstance(model, nn.Module):
        raise AdaptationError(f"expected a torch.nn.Module, got {type(model).__name__}")
    if isinstance(graphs, bool) or not isinstance(graphs, int) or graphs < 1:
        raise AdaptationError(f"graphs must be a number of graphs, 1 or more, got {graphs!r}")
    return CapturedModel(model, graphs, pad=False)


def capture_padded(model: nn.Module, graphs: int) -> CapturedModel:
    """`capture` for a server, whose batches vary in rows and streams: they are padded to a few shapes.

    All that the model takes and returns must have one row for each example, and rows may depend on each other only
    through adapted layers. Batches of a single stream are not padded.
    """
    return CapturedModel(model, graphs, pad=True)


class _Batch(NamedTuple):
    """What a prediction depends on: the inputs, and the selected streams of each adaptation of the model."""

    inputs: tuple[Tensor, ...]
    selections: list[tuple[Adaptation, Selection]]
    shape: SegmentShape | None
    """Of batches with rows of several streams."""

    @classmethod
    def of(cls, inputs: tuple[Tensor, ...], layers: Sequence[LayerAdaptation], *, pad: bool) -> _Batch | None:
        """None if it cannot be recorded."""
        adaptations = list({id(layer.shared): layer.shared for layer in layers}.values())
        selections = [(shared, current_selection(shared)) for shared in adaptations]
        segments = {id(selection.segments): selection.segments for _, selection in selections}
        if len(segments) > 1 or any(selection.prepared for _, selection in selections):
            return None
        shared_segments = next(iter(segments.values()), None)
        if shared_segments is None:
            return cls(inputs, selections, None)
        assert isinstance(shared_segments, StreamSegments)
        if any(value.dim() == 0 or len(value) != shared_segments.examples for value in inputs):
            return None
        return cls(inputs, selections, SegmentShape.of(shared_segments, pad=pad))

    @property
    def streams(self) -> list[tuple[Stream, ...]]:
        """The streams of each adaptation that remembers something."""
        return [selection.streams for shared, selection in self.selections if shared.strategy.keeps_state]

    @contextmanager
    def locked(self, frame: FrameType) -> Iterator[None]:
        """Lock the streams for a function, in the order of a pass, so that no two passes block each other."""
        ordered = [stream for streams in self.streams for stream in sorted(streams, key=lambda stream: stream.number)]
        locked: list[Stream] = []
        try:
            for stream in ordered:
                stream.lock.acquire(frame)
                locked.append(stream)
            yield
        finally:
            for stream in locked:
                stream.lock.release(frame)

    def key(self) -> Any:
        """What a graph is for; None if the streams remember different kinds of things, or not on this device."""
        layouts = []
        for streams in self.streams:
            packed = streams[0].packed
            if any(stream.packed.layout is not packed.layout for stream in streams):
                return None
            if any(device != self.inputs[0].device for device, _ in packed.vectors):
                return None
            layouts.append(packed.layout)
        described = tuple((value.shape[1:], value.stride()[1:], value.dtype, value.device) for value in self.inputs)
        rows = tuple(len(value) if value.dim() else 0 for value in self.inputs) if self.shape is None else self.shape
        device_type = self.inputs[0].device.type
        cast = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
        return described, rows, cast, torch.is_inference_mode_enabled(), *layouts


class _StaticPass(Pass):
    """A pass that reads what streams remember from memory of its own, and writes it there."""

    def __init__(self, states: Packed, *, is_single: bool) -> None:
        super().__init__((), is_single=is_single)
        self.states = states

    def parts(self) -> list[PassPart]:
        if not self._parts:
            count = 1 if self._is_single else len(next(iter(self.states.vectors.values())))
            self._parts = [PassPart(list(range(count)), self.states.unpack(), is_single=self._is_single)]
        return self._parts

    def end(self, *, keep: bool) -> None:
        parts, self._parts = self._parts, []
        is_kept, self.is_rejected = keep and not self.is_rejected, False
        for part in parts if is_kept else []:
            if part.has_changed:
                new = pack(part.new_states(), None if part.is_single else len(part.streams))
                if new.layout is not self.states.layout:
                    raise AdaptationError("a pass that changes what streams remember in kind cannot be recorded")
                is_finite = new.is_finite()
                self.states.copy_(new if is_finite is None else new.where(is_finite, self.states))


class _Graph:
    """A recorded pass."""

    def __init__(
        self, model: nn.Module, layers: Sequence[LayerAdaptation], batch: _Batch, recorder: CudaGraphRecorder
    ) -> None:
        self._model, self._layers, self._shape = model, layers, batch.shape
        is_single = batch.shape is None
        with torch.inference_mode(False):
            self._inputs = [_memory_for(value, batch.shape) for value in batch.inputs]
            self._segments = None if batch.shape is None else StaticSegments(batch.shape, batch.inputs[0].device)
            self._passes = [
                _StaticPass(_memory_of(streams, batch.shape), is_single=is_single) for streams in batch.streams
            ]
        passes = iter(self._passes)
        self._blocks = [
            (
                shared,
                selection._replace(
                    segments=self._segments,
                    examples=None if batch.shape is None else batch.shape.rows,
                    prepared=next(passes) if shared.strategy.keeps_state else None,
                ),
            )
            for shared, selection in batch.selections
        ]
        self._load(batch)
        self._replay: Callable[[], None]
        self._replay, (self._output, self._statistics) = recorder.record(self._run)
        if batch.shape is not None and batch.shape.is_padded:
            _check_rows(self._output, batch.shape.rows)

    def replay(self, batch: _Batch) -> Any:
        self._load(batch)
        self._replay()
        for streams, static in zip(batch.streams, self._passes, strict=True):
            rows = [static.states.clone()] if self._shape is None else static.states.rows(len(streams))
            for stream, packed in zip(streams, rows, strict=True):
                stream.previous = None
                stream.keep(packed)
        segments = batch.selections[0][1].segments if batch.selections else None
        count = None if segments is None else segments.count
        for layer, statistics in zip(self._layers, self._statistics, strict=True):
            layer.seen, layer.used = (_first_segments(own, count) for own in statistics)
        rows_given = None if self._shape is None else len(batch.inputs[0])
        return tree_map(lambda value: value[:rows_given].clone() if isinstance(value, Tensor) else value, self._output)

    def _run(self) -> tuple[Any, list[tuple[Statistics | None, Statistics | None]]]:
        """The pass itself. It may be called again and again."""
        with open_blocks(self._blocks):
            output = self._model(*self._inputs)
        return output, [(layer.seen, layer.used) for layer in self._layers]

    def _load(self, batch: _Batch) -> None:
        for memory, value in zip(self._inputs, batch.inputs, strict=True):
            if memory.shape == value.shape:
                memory.copy_(value)
            else:
                memory[: len(value)].copy_(value)
                memory[len(value) :].copy_(value[:1].expand_as(memory[len(value) :]))
        if self._segments is not None:
            segments = batch.selections[0][1].segments
            assert isinstance(segments, StreamSegments)
            self._segments.fill(segments)
        for streams, static in zip(batch.streams, self._passes, strict=True):
            static.states.copy_(_stacked(streams, self._shape))


def _stacked(streams: Sequence[Stream], shape: SegmentShape | None) -> Packed:
    """What the streams remember; those that pad the batch are copies of the first one."""
    packed = [stream.packed for stream in streams]
    return packed[0] if shape is None else stack([*packed, *packed[:1] * (shape.padded_segments - len(packed))])


def _memory_of(streams: Sequence[Stream], shape: SegmentShape | None) -> Packed:
    return _stacked(streams, shape).clone()


def _memory_for(value: Tensor, shape: SegmentShape | None) -> Tensor:
    """Memory for inputs of this shape and layout, with so many rows."""
    if shape is None:
        return torch.empty_like(value, memory_format=torch.preserve_format)
    padded_shape = (shape.rows, *value.shape[1:])
    return torch.empty_strided(padded_shape, value.stride(), dtype=value.dtype, device=value.device)


def _first_segments(statistics: Statistics | None, count: int | None) -> Statistics | None:
    """Those of the first segments, [S, C]; those of all, [C], as they are."""
    if statistics is None or statistics.mean.dim() == 1 or count is None:
        return statistics
    return Statistics(*(t[:count] for t in statistics))


def _check_rows(output: Any, rows: int) -> None:
    for value in tree_leaves(output):
        if isinstance(value, Tensor) and (value.dim() == 0 or len(value) != rows):
            raise AdaptationError(
                f"it returns a tensor of shape {tuple(value.shape)} for {rows} examples, but all that a padded model "
                "returns must have one row for each example"
            )
