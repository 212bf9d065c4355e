"""A pass through a model whose rows belong to several streams.

It does for all of them what `passes.Pass` does for one: a layer works on copies of the states, which are kept when the
pass has ended. The streams are in a table (`stream_table.py`). Those of the same stage are one *part* of the pass, and
the strategy is called once for each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from predbn.common import AdaptationError

from .passes import Stream
from .stream_rows import StreamRows, tensor_on
from .stream_table import GatheredStates, LayerState, StreamTable

if TYPE_CHECKING:
    from .adapted_layer import Adaptation
    from .strategies import Strategy


class PassPart:
    """The states of streams of the same stage, with a first dimension of streams; `streams` are their positions."""

    def __init__(self, streams: list[int], states: GatheredStates) -> None:
        self.streams = streams
        self.states = states
        self._counted: set[str] = set()
        self._index: Tensor | None = None

    def index(self, device: torch.device) -> Tensor:
        """The positions on a device, as whole numbers of 32 bits."""
        if self._index is None or self._index.device != device:
            self._index = tensor_on(device, self.streams, torch.int32)
        return self._index

    def state(self, layer: str) -> LayerState:
        return self.states.state(layer)

    def count(self, layer: str) -> int:
        """How many passes of each of the streams have called this layer, including this one."""
        state = self.state(layer)
        if layer not in self._counted:
            self._counted.add(layer)
            state["passes"] = state.get("passes", 0) + 1
        return int(state["passes"])


class MixedPass:
    """One pass over rows of several streams, which are locked as soon as a layer asks for their states."""

    def __init__(self, streams: Sequence[Stream], table: StreamTable) -> None:
        if torch._C._current_graph_task_id() != -1:
            raise AdaptationError(
                "activation checkpointing runs a pass again, for which the states of several streams are not kept; "
                "predict one stream at a time with predbn.stream(model, …), or without checkpointing"
            )
        self.is_rejected = False
        self._streams = streams
        self._table = table
        self._locked: list[Stream] = []
        self._parts: list[PassPart] = []

    def parts(self) -> list[PassPart]:
        if not self._parts:
            for stream in sorted(self._streams, key=lambda stream: stream.number):  # so that no two passes block
                stream.lock.acquire()
                self._locked.append(stream)
            rows = [stream.enter(self._table) for stream in self._streams]
            self._parts = [
                PassPart(streams, self._table.gather([rows[stream] for stream in streams]))
                for streams in self._table.by_stage(rows)
            ]
        return self._parts

    def after(self, strategy: Strategy, output: Any, shared: Adaptation, rows: StreamRows | None) -> None:
        """Tell the strategy what the model has returned."""
        assert rows is not None
        is_per_row = isinstance(output, Tensor) and output.dim() > 0 and len(output) == len(rows)
        for part in self._parts if not self.is_rejected else []:
            own_output, own_rows = output if is_per_row else None, rows
            if is_per_row and len(self._parts) > 1:
                index, own_rows = rows.part(part.streams)
                own_output = output[index.to(output.device)]
            strategy.after_pass(part.states, own_output, shared, own_rows)

    def end(self, *, keep: bool) -> None:
        """Keep the new states, or drop them."""
        try:
            if keep and not self.is_rejected:
                for part in self._parts:
                    self._table.scatter([self._streams[stream].row for stream in part.streams], part.states)
        finally:
            self._parts = []
            while self._locked:
                self._locked.pop().lock.release()
