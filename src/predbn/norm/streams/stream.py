"""A stream, and how a pass through the model changes what streams remember.

A *pass* is one call of the module that was given to `adapt` (see `call.py`), for one stream or for rows of several. In
a pass every layer works on a copy of its state. The copies replace the states when the call has returned, all at once,
and are dropped if it raised. A layer that is called on its own, outside of such a call, is a pass by itself. Passes of
several threads on one stream take turns, as soon as they touch its state.

torch.compile follows neither locks nor packing. In a compiled graph a pass is of a single stream, and changes its
dictionary of states at the end.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from predbn.common import AdaptationError

from ..segments import Segments, StreamSegments, tensor_on
from ..tracing import is_tracing
from .lock import StreamLock
from .state import LayerState, Packed, States, copy_states, pack, stack

_numbers = itertools.count()


def is_backward() -> bool:
    """Whether autograd runs backward in this thread."""
    return torch._C._current_graph_task_id() != -1


class Stream:
    """The states of all layers for one source of data (a camera, a region, a user).

    They are a dictionary, or packed (`state.py`), in one attribute, so that other threads see them change at once.
    `previous` holds those before the last pass, because activation checkpointing runs parts of that pass once more; in
    inference mode it cannot. `number` is the order in which streams are locked. The rest belongs to the table of
    streams (`registry.py`): whether the stream was read from the store, when it was used last, of when the copy is that
    was `written` to the store (under the lock `writing`), and `is_removed`, after which it is not written again.
    """

    def __init__(self, states: States | None = None) -> None:
        self._content: States | Packed = {} if states is None else states
        self.previous: Packed | None = None
        self.number = next(_numbers)
        self.lock = StreamLock()
        self.is_loaded = True
        self.last_used = self.written = 0
        self.is_removed = False
        self.writing = threading.Lock()

    @property
    def states(self) -> States:
        content = self._content
        return content.unpack() if isinstance(content, Packed) else content

    @states.setter
    def states(self, states: States) -> None:
        self._content = states

    @property
    def packed(self) -> Packed:
        """Only while the stream is locked."""
        if not isinstance(self._content, Packed):
            with torch._C._DisableFuncTorch():
                self._content = pack(self._content)
        return self._content

    def keep(self, packed: Packed) -> None:
        """Remember this from now on."""
        self._content = packed

    def set_state(self, layer: str, state: LayerState) -> None:
        """Replace what is remembered for one layer, by tensors that can be used with gradients."""
        with self.lock, torch.inference_mode(False):
            self.states = {**self.states, **copy_states({layer: state})}

    def clear(self) -> None:
        """Forget everything, once no other thread is in a pass."""
        with self.lock:
            self.states, self.previous = {}, None

    def copied_states(self) -> States:
        """The states with tensors of their own."""
        with self.lock:
            return copy_states(self.states)

    def __getstate__(self) -> dict[str, Any]:
        """Locks and layouts cannot be copied, and nobody uses a copy yet."""
        return {"states": self.states, "is_loaded": self.is_loaded}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Stream.__init__(self, state["states"])
        self.is_loaded = state["is_loaded"]


class PassPart:
    """The states of streams of the same layout in a pass, `old` before it; `streams` are their positions in the batch.

    `is_single` says that the batch is that of one stream. Tensors then have no dimension of streams.
    """

    def __init__(self, streams: list[int], old: States, *, is_single: bool) -> None:
        self.streams, self.old, self.is_single = streams, old, is_single
        self.states: States = {}
        self._counted: set[str] = set()
        self._index: Tensor | None = None

    def state(self, layer: str) -> LayerState:
        """A layer's state in this pass."""
        state = self.states.get(layer)
        if state is None:
            state = self.states[layer] = dict(self.old.get(layer, {}))
        return state

    def count(self, layer: str) -> int:
        """How many passes have called this layer, including this one. Several calls in one pass count once."""
        state = self.state(layer)
        passes = state.get("passes", 0)
        assert isinstance(passes, int)
        if layer not in self._counted:
            self._counted.add(layer)
            passes += 1
            state["passes"] = passes
        return passes

    def index(self, device: torch.device) -> Tensor:
        """The positions on a device."""
        if self._index is None or self._index.device != device:
            self._index = tensor_on(device, self.streams)
        return self._index

    @property
    def has_changed(self) -> bool:
        return any(
            state.keys() != (old := self.old.get(layer, {})).keys() or any(v is not old[k] for k, v in state.items())
            for layer, state in self.states.items()
        )

    def new_states(self) -> States:
        """The states after the pass, of all layers."""
        return {**self.old, **self.states}


class Pass:
    """One pass over the examples of some streams, which are locked as soon as a layer asks for their states."""

    def __init__(self, streams: Sequence[Stream], *, is_single: bool) -> None:
        # A forward pass while autograd runs backward is one that activation checkpointing runs again.
        self._is_repeated = not is_tracing() and is_backward()
        if self._is_repeated and not is_single:
            raise AdaptationError(
                "activation checkpointing runs a pass again, for which the states of several streams are not kept; "
                "predict one stream at a time with predbn.stream(model, …), or without checkpointing"
            )
        # Functions that torch.func transforms (vmap, grad, jvp) have no effects, and their values mean nothing outside.
        self.is_rejected = not is_tracing() and torch._C._functorch.peek_interpreter_stack() is not None
        self._streams, self._is_single = streams, is_single
        self._caller: FrameType | None = None
        self._locked: list[Stream] = []
        self._parts: list[PassPart] = []

    def begin(self, caller: FrameType) -> None:
        """Begin the pass of a model that this function calls.

        Streams are locked and their states loaded now: a compiled model reads them, but cannot load them.
        """
        self._caller = caller
        self.parts()

    def parts(self) -> list[PassPart]:
        """The streams by layout."""
        if not self._parts:
            if not is_tracing() and not self._is_repeated:
                self._caller = self._caller or sys._getframe(1)  # a layer that is called by itself
                for stream in sorted(self._streams, key=lambda stream: stream.number):  # so that no two passes block
                    self._locked.append(stream)
                    stream.lock.acquire(self._caller)
            self._parts = [self._single_part()] if self._is_single else self._mixed_parts()
        return self._parts

    def _single_part(self) -> PassPart:
        stream = self._streams[0]
        if self._is_repeated:
            old = {} if stream.previous is None else stream.previous.unpack()
        else:
            old = stream.states if is_tracing() else stream.packed.unpack()
        return PassPart([0], old, is_single=True)

    def _mixed_parts(self) -> list[PassPart]:
        by_layout: dict[int, list[int]] = {}
        for position, stream in enumerate(self._streams):
            by_layout.setdefault(id(stream.packed.layout), []).append(position)
        return [
            PassPart(positions, stack([self._streams[p].packed for p in positions]).unpack(), is_single=False)
            for positions in by_layout.values()
        ]

    def after(self, after_pass: Callable[..., None], output: Any, segments: Segments | None) -> None:
        """Tell the strategy what the model has returned, before the states are kept."""
        if self.is_rejected or self._is_repeated:
            return
        for part in self._parts:
            if segments is None:
                after_pass(part.states, output, segments=None)
                continue
            is_per_example = isinstance(output, Tensor) and output.dim() > 0 and len(output) == segments.examples
            part_output, part_segments = output if is_per_example else None, segments
            if part_output is not None and len(self._parts) > 1:
                assert isinstance(segments, StreamSegments)
                rows, part_segments = segments.part(part.streams)
                part_output = output[rows]
            after_pass(part.states, part_output, segments=part_segments)

    def end(self, *, keep: bool) -> None:
        """Keep the new states, or drop them."""
        parts, self._parts = self._parts, []
        try:
            if keep and not self.is_rejected and not self._is_repeated:
                for part in parts:
                    if part.has_changed:
                        self._keep(part)
        finally:
            while self._locked:
                assert self._caller is not None
                self._locked.pop().lock.release(self._caller)
            self._caller = None

    def _keep(self, part: PassPart) -> None:
        """A stream whose new state is not finite keeps the old one."""
        streams = [self._streams[position] for position in part.streams]
        if is_tracing():
            streams[0].states = _finite_states(part)
            return
        olds = [stream.packed for stream in streams]
        new = pack(part.new_states(), None if part.is_single else len(streams))
        is_finite, is_kept = new.is_finite(), [True] * len(streams)
        if is_finite is not None and not _is_true(is_finite):
            # The host need not know which ones, unless the streams remember other kinds of things now.
            if all(old.layout is new.layout for old in olds):
                new = new.where(is_finite, olds[0] if part.is_single else stack(olds))
            else:
                is_kept = is_finite.reshape(-1).tolist()
        rows = [new] if part.is_single else new.rows(len(streams))
        for stream, row, keeps in zip(streams, rows, is_kept, strict=True):
            if keeps:
                stream.keep(row)
        if part.is_single:  # activation checkpointing is for a single stream
            streams[0].previous = None if torch.is_inference_mode_enabled() else olds[0]


def _finite_states(part: PassPart) -> States:
    """The states after a pass in a graph, or those before if a number is not finite; a new stream has none."""
    new = part.new_states()
    changed = [
        (layer, key, value)
        for layer, state in part.states.items()
        for key, value in state.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value is not part.old.get(layer, {}).get(key)
    ]
    if not changed:
        return new
    is_finite = torch.stack([value.isfinite().all().to(changed[0][2].device) for _, _, value in changed]).all()
    if is_finite.is_cpu and any(key not in part.old.get(layer, {}) for layer, key, _ in changed):
        torch._assert_async(is_finite, "the first batch of a stream has no finite example; predict another one first")
    for layer, key, value in changed:
        old = part.old.get(layer, {}).get(key)
        if old is not None:
            new[layer][key] = torch.where(is_finite.to(value.device), value, old)
    return new


def _is_true(is_finite: Tensor) -> bool:
    """Whether it is known without a synchronisation that all are finite."""
    return is_finite.is_cpu and bool(is_finite.all())
