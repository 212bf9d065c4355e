"""Predictions as CUDA graphs, for a GPU that waits for the host.

A small batch, or a strategy of many small steps, takes less time on a GPU than launching its kernels takes on the host.
A graph launches all kernels of a pass at once. It is recorded when a shape of input comes for the second time, and
reads from and writes to memory of its own, into which inputs are copied (`captured_pass.py`).

What a strategy remembers is part of the graph, and so is which row of a batch belongs to which stream. A pass that
changes what a stream remembers in kind (its first ones do) is not recorded, nor one whose streams remember different
kinds of things.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError

from .adapted_layer import CHANGES, Adaptation, LayerAdaptation, adaptations, adapted_layers
from .calibration import Calibration
from .captured_pass import CapturedPass, MixedStreamsPass, SingleStreamPass
from .gpu.operators import is_dense
from .graph_cache import GraphCache
from .kernels import is_tracing
from .passes import Stream
from .recorder import CudaRecorder
from .static_rows import RowShape, padded_size
from .stream_blocks import Selection, current_selection
from .stream_rows import StreamRows
from .stream_table import States


class CapturedModel(nn.Module):
    """A model whose predictions are recorded as CUDA graphs, one for each shape of its inputs.

    On a CPU, with gradients, in training, with arguments that are not tensors, and in a graph of torch.compile, the
    model is called as it is. Of all other predictions, `replays` counts those that were replayed,
    and `calls` those that were not.
    """

    def __init__(self, model: nn.Module, graphs: int, pad: bool) -> None:
        super().__init__()
        self.model, self.graphs, self.pad = model, graphs, pad
        self.replays = self.calls = 0
        self._layers: list[tuple[nn.Module, LayerAdaptation, Calibration | None]] = []
        self._shared: list[Adaptation] = []
        self._changes = -1
        self._begin()

    def _begin(self) -> None:
        self._lock, self._recorder, self._has_warned = threading.RLock(), CudaRecorder(), False
        self._forget()

    def _forget(self) -> None:
        self._graphs = GraphCache(self.graphs)
        self._kinds: dict[Any, int] = {}
        """Numbers for what streams remember, which is long."""
        self._last: dict[Any, tuple[Any, SingleStreamPass]] = {}

    def adaptations(self) -> list[Adaptation]:
        """Those of the model. It is not searched for them again as long as no layer is adapted or restored."""
        with self._lock:
            self._notice_changes()
            return self._shared or adaptations(self.model)

    def forward(self, *inputs: Any, **others: Any) -> Any:
        if others or not inputs or self.model.training or torch.is_grad_enabled() or is_tracing():
            return self.model(*inputs, **others)
        if not self._recorder.can_record(inputs):
            return self.model(*inputs)
        with self._lock:  # a graph has one place for inputs, states and output
            return self._predict(inputs)

    def _predict(self, inputs: tuple[Tensor, ...]) -> Any:
        self._notice_changes()
        selections = [(shared, current_selection(shared)) for shared in self._shared]
        rows = [selection.rows for _, selection in selections]
        if all(own is None for own in rows):
            return self._predict_single_streams(inputs, selections)
        first = rows[0]
        if first is None or any(own is not first for own in rows) or (self.pad and _examples(inputs) != len(first)):
            return self._call(inputs)
        return self._predict_mixed_streams(inputs, first, selections)

    def _call(self, inputs: tuple[Tensor, ...]) -> Any:
        self.calls += 1
        return self.model(*inputs)

    def _predict_single_streams(
        self, inputs: tuple[Tensor, ...], selections: Sequence[tuple[Adaptation, Selection]]
    ) -> Any:
        kept = [(shared, selection.streams[0]) for shared, selection in selections if shared.strategy.keeps_state]
        streams = [stream for _, stream in kept]
        for stream in streams:
            stream.leave_table()
        # Rows that do not depend on each other may be filled up by others.
        examples = padded_size(_examples(inputs) or 1) if self.pad and self._has_independent_rows(inputs) else None
        inputs, shape = self._shape(inputs, examples)
        key, last = self._last.get(shape, (None, None))
        if last is None or not last.has_states_of(streams):  # otherwise nothing else has to be looked at
            before = tuple(_kinds(stream.states) for stream in streams)
            key = shape, self._kinds.setdefault(before, len(self._kinds))
            if key not in self._graphs:
                output = self._call(inputs)
                if before == tuple(_kinds(stream.states) for stream in streams) and self._graphs.make_room(key):
                    with _locked([[stream] for stream in streams]):
                        new = SingleStreamPass(self.model, self._watched(), inputs, examples, kept)
                    self._graphs[key] = self._recorded(new, inputs)
                return output
            last = self._graphs[key]
            if last is None:
                return self._call(inputs)
            self._last[shape] = key, last
        self._count_replay(key)
        return last.replay(inputs, streams)

    def _has_independent_rows(self, inputs: tuple[Tensor, ...]) -> bool:
        return bool(_examples(inputs)) and all(shared.is_identity for shared in self._shared)

    def _predict_mixed_streams(
        self, inputs: tuple[Tensor, ...], rows: StreamRows, selections: Sequence[tuple[Adaptation, Selection]]
    ) -> Any:
        kept = [(shared, selection.streams) for shared, selection in selections if shared.strategy.keeps_state]
        with _locked([streams for _, streams in kept]):
            places = [[stream.enter(shared.streams.table) for stream in streams] for shared, streams in kept]
            tables = [shared.streams.table for shared, _ in kept]
            stages = [table.common_stage(own) for table, own in zip(tables, places, strict=True)]
            device = inputs[0].device
            if any(stage is None or any(own != device for own, _ in stage.matrices) for stage in stages):
                return self._call(inputs)
            row_shape = RowShape.of(rows, pad=self.pad)
            examples = row_shape.rows if self.pad else None
            inputs, shape = self._shape(inputs, examples)
            key = shape, row_shape, *stages
            graph = self._graphs.get(key)
            if graph is None:
                output = self._call(inputs)
                is_steady = all(
                    table.common_stage(own) is stage for table, own, stage in zip(tables, places, stages, strict=True)
                )
                if key not in self._graphs and is_steady and self._graphs.make_room(key):
                    left = iter(stages)
                    all_stages = [
                        (shared, next(left) if shared.strategy.keeps_state else None) for shared, _ in selections
                    ]
                    new = MixedStreamsPass(self.model, self._watched(), inputs, examples, row_shape, all_stages)
                    new.fill(rows, places)
                    self._graphs[key] = self._recorded(new, inputs)
                return output
            self._count_replay(key)
            return graph.replay(inputs, rows, places)

    def _shape(self, inputs: tuple[Tensor, ...], examples: int | None) -> tuple[tuple[Tensor, ...], Any]:
        """What a graph is for; the inputs in a layout that can be filled up, if they are to be."""
        if examples is not None:
            inputs = tuple(value if is_dense(value) else value.contiguous() for value in inputs)
        described = tuple(
            (
                value.shape if examples is None else (examples, *value.shape[1:]),
                value.stride(),
                value.dtype,
                value.device,
            )
            for value in inputs
        )
        cast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        is_watched = tuple(shared.watches_drift for shared in self._shared)
        return inputs, (described, cast, torch.is_inference_mode_enabled(), is_watched)

    def _watched(self) -> list[LayerAdaptation]:
        return [adaptation for _, adaptation, _ in self._layers if adaptation.shared.watches_drift]

    def _count_replay(self, key: Any) -> None:
        self.replays += 1
        self._graphs.count(key)

    def _recorded(self, new: CapturedPass, inputs: tuple[Tensor, ...]) -> CapturedPass | None:
        """A pass that is recorded; None, with a warning, if that is not possible. Layers do not notice it."""
        layers = [(adaptation, adaptation.last_pass, adaptation.last_batch) for _, adaptation, _ in self._layers]
        self._last = {
            shape: last for shape, last in self._last.items() if last[0] in self._graphs
        }  # one may be dropped
        try:
            new.record(self._recorder, inputs)
        except (RuntimeError, AdaptationError) as error:
            if not self._has_warned:
                self._has_warned = True
                reason = str(error).splitlines()[0]
                message = f"this model cannot be recorded as a CUDA graph and is called as it is: {reason}"
                warnings.warn(message, stacklevel=5)
            return None
        finally:
            for adaptation, last_pass, last_batch in layers:
                adaptation.last_pass, adaptation.last_batch = last_pass, last_batch
        return new

    def _notice_changes(self) -> None:
        """Forget all graphs if layers of the model were adapted, restored or calibrated since they were recorded."""
        if self._changes == CHANGES.count:
            return
        self._changes = CHANGES.count
        layers = [(layer, adaptation, adaptation.calibration) for _, layer, adaptation in adapted_layers(self.model)]
        if list(map(_identities, layers)) != list(map(_identities, self._layers)):
            self._layers = layers
            self._shared = list({id(own.shared): own.shared for _, own, _ in layers}.values())
            self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """A copy records graphs of its own."""
        own = "_lock", "_recorder", "_graphs", "_kinds", "_last"
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._begin()


def capture(model: nn.Module, graphs: int = 8, *, pad: bool = False) -> CapturedModel:
    """Record the predictions of a model as CUDA graphs, one for each shape of its inputs.

        fast = predbn.capture(predbn.adapt(model, "auto"))
        with torch.inference_mode():
            fast(images)

    The second call with the same shape records; later ones take as long as the GPU takes. The model itself is not
    changed, and both can be used in turn. Parameters may be changed in place, but not replaced or moved. `graphs` of
    them are kept, those that are used most; they share the memory of a pass.

    With `predbn.streams`, a shape is also how many streams there are, how many rows the largest has (up to 4, 8, 32,
    64, …), and whether one has a single row. If these vary, `pad=True` fills batches up to one of a few shapes, without
    any effect on the results. All that the model takes and returns must then have one row for each example, and rows
    may depend on each other only through adapted layers. Batches of a single stream that is opened with `predbn.stream`
    are not filled up.
    """
    if isinstance(graphs, bool) or not isinstance(graphs, int) or graphs < 1:
        raise AdaptationError(f"graphs={graphs!r}; it is how many shapes of inputs are kept as graphs, 1 or more")
    return CapturedModel(model, graphs, pad)


@contextmanager
def _locked(streams: Sequence[Sequence[Stream]]) -> Iterator[None]:
    """Lock the streams of each adaptation in the order of a pass, so that no two passes block each other.

    Adaptations come one after the other, as their layers do, and the streams of each in the order of their numbers.
    """
    ordered = [stream for own in streams for stream in sorted(own, key=lambda stream: stream.number)]
    for stream in ordered:
        stream.lock.acquire()
    try:
        yield
    finally:
        for stream in ordered:
            stream.lock.release()


def _identities(values: tuple[Any, ...]) -> list[int]:
    return [id(value) for value in values]


def _examples(inputs: tuple[Tensor, ...]) -> int | None:
    """How many examples there are; None if not all inputs have as many rows."""
    sizes = {len(value) if value.dim() else None for value in inputs}
    return sizes.pop() if len(sizes) == 1 else None


def _kinds(states: States) -> tuple[Any, ...]:
    """What a stream remembers: the kinds of tensors, and the values of everything else."""
    return tuple(
        (layer, key, (value.shape, value.dtype) if isinstance(value, Tensor) else value)
        for layer, state in states.items()
        for key, value in state.items()
    )
