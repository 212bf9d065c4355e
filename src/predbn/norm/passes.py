"""How one pass through a model changes what a stream remembers.

A *pass* is one call of the module that was given to `adapt` (see `model_calls.py`). In a pass every layer works on a
copy of its state. The copies replace the states when the call has returned, all at once, and are dropped if it
raised. A layer that is called on its own, outside of such a call, is a pass by itself. Passes of several threads on one
stream take turns, as soon as they touch its state.

If all that a stream remembers is on one GPU, the copy is a single vector (`joined_states.py`), which kernels change in
place. Layers that do not use these kernels have copies of their own, as they do on a CPU.

torch.compile does not follow locks. A compiled graph changes states at its end, which comes to the same.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .joined_states import JoinedStates, join_states
from .kernels import current_cuda_stream, is_tracing
from .stream_table import LayerState, States, StreamTable

if TYPE_CHECKING:
    from .adapted_layer import Adaptation
    from .strategies import Strategy
    from .stream_rows import StreamRows

_numbers = itertools.count()


class Stream:
    """The states of all layers for one source of data (a camera, a region, a user).

    A stream that is predicted together with others is in a table with them (`stream_table.py`), in the row `row`; then
    `states` is empty. A stream that is used by itself has tensors of its own in `states`.

    `previous` holds the states before the last pass, because activation checkpointing runs parts of that pass once
    more; in inference mode it cannot. `states` may be parts of one vector (`joined_states.py`), which are made only if
    somebody asks for them. `number` is the order in which streams are locked.
    `users` counts the open blocks of the stream, `is_saved` says that it is in a store as it is here, and `is_removed`
    that nobody can open it again. `is_captured` says that a CUDA graph changes the tensors in place (`capture.py`).
    """

    def __init__(self, states: States | None = None) -> None:
        # One attribute, because threads that only read it take no lock.
        self._kept: States | JoinedStates = {} if states is None else states
        self.previous: States | JoinedStates = {}
        self.table: StreamTable | None = None
        self.row = -1
        self.number = next(_numbers)
        self.users = 0
        self.is_saved = False
        self.is_captured = False
        self.is_removed = False
        self.lock = threading.RLock()

    @property
    def states(self) -> States:
        kept = self._kept
        return kept.states() if isinstance(kept, JoinedStates) else kept

    @states.setter
    def states(self, states: States) -> None:
        self._kept, self.is_captured = states, False

    @property
    def joined(self) -> JoinedStates | None:
        """The vector that the states are parts of; None if there is none."""
        kept = self._kept
        return kept if isinstance(kept, JoinedStates) else None

    def keep(self, states: States | JoinedStates, previous: States | JoinedStates) -> None:
        """Remember this from now on."""
        self._kept, self.previous, self.is_captured = states, previous, False

    def clear(self) -> None:
        """Forget everything, once no other thread is in a pass."""
        with self.lock:
            if self.table is not None:
                self.table.remove(self.row)
            self.states, self.previous, self.table, self.is_saved = {}, {}, None, False

    def state(self, layer: str) -> LayerState:
        return self.states.setdefault(layer, {})

    def joined_states(self) -> JoinedStates | None:
        """All that the stream remembers as a vector, which must not be changed; None if that is impossible."""
        return self.joined or join_states(self.states)

    def enter(self, table: StreamTable) -> int:
        """Put the states into a table; the number of the row."""
        with self.lock:
            if self.table is None:
                self.row, self.table = table.add(self.states), table
                self.states, self.previous = {}, {}
            return self.row

    def leave_table(self) -> None:
        """Have tensors of its own again."""
        if self.table is not None:
            with self.lock:
                states = self.copied_states()
                self.clear()
                self.states = states

    def copied_states(self) -> States:
        """The states in a dictionary of their own, wherever they are."""
        with self.lock:
            if self.table is not None:
                return self.table.states(self.row)
            if self.is_captured:
                return copy_states(self.states)
            return {layer: dict(state) for layer, state in self.states.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Locks cannot be copied, and nobody uses a copy yet."""
        previous = self.previous.states() if isinstance(self.previous, JoinedStates) else self.previous
        own = {key: value for key, value in self.__dict__.items() if key != "lock"}
        return own | {"users": 0, "_kept": self.states, "previous": previous}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "states" in state:  # written by an earlier version
            state = {**state, "_kept": state["states"]}
            del state["states"]
        self.__dict__.update(state, lock=threading.RLock(), number=next(_numbers))


def copy_states(states: States) -> States:
    """The states with tensors of their own."""
    return {
        layer: {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}
        for layer, state in states.items()
    }


class Pass:
    """One pass: the states that replace those of the stream when it ends."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.states: dict[str, LayerState] = {}
        self.counted: dict[str, bool] = {}
        self.changed: dict[str, bool] = {}
        """The layers whose states kernels have changed in the vector."""
        self._before: JoinedStates | None = None
        self._joined: JoinedStates | None = None
        self._is_asked = False
        self._cuda_stream = 0
        self._taken: dict[tuple[str, str], bool] = {}
        self.is_rejected = False
        self.is_locked = False
        # A forward pass while autograd runs backward is one that activation checkpointing runs again.
        self.is_repeated = not is_tracing() and torch._C._current_graph_task_id() != -1

    def state(self, layer: str) -> LayerState:
        """A layer's state in this pass. One that is marked as done does not change any more and is not copied."""
        state = self.states.get(layer)
        if state is None:
            state = self.stream.states.get(layer)
            if state is None or "done" not in state:
                state = self._copied_state(layer)
                self.states[layer] = state
        return state

    def _lock(self) -> None:
        if not self.is_locked and not self.is_repeated and not is_tracing():
            self.stream.lock.acquire()
            self.is_locked = True
            self.stream.leave_table()

    def _copied_state(self, layer: str) -> LayerState:
        self._lock()
        if layer in self.changed:
            assert self._joined is not None
            state = self._joined.state(layer)
            return {key: value for key, value in state.items() if (layer, key) not in self._taken}
        states = self.stream.previous if self.is_repeated else self.stream.states
        if isinstance(states, JoinedStates):
            states = self.stream.previous = states.states()
        return dict(states.get(layer, {}))

    def joined(self, layer: str) -> JoinedStates | None:
        """The vector of this pass, if kernels may change the state of the layer in it; otherwise None."""
        if not self._is_asked and not self.is_repeated and not is_tracing():
            self._is_asked = True
            self._lock()
            self._before = self.stream.joined_states()
            if self._before is not None:
                self._cuda_stream = current_cuda_stream(self._before.vector)
                with torch.inference_mode(False):  # a part of the model may be in this mode, and the rest not
                    self._joined = JoinedStates(self._before.layout, self._before.vector.clone())
        joined = self._joined
        if joined is None or layer not in joined.layout.places or layer in self.states:
            return None
        # A layer on another CUDA stream need not wait for the one that has made the copy.
        return joined if current_cuda_stream(joined.vector) == self._cuda_stream else None

    def change(self, layer: str) -> None:
        """Kernels have changed the state of a layer in the vector."""
        self.changed[layer] = True

    def take(self, layer: str, key: str) -> None:
        """Kernels have used this tensor of the vector up: unless it is filled again, the layer does not have it."""
        self._taken[layer, key] = True

    def fill(self, has: str, values: Mapping[str, Tensor]) -> bool:
        """Write the same tensors into all layers with the key `has`, in the vector; False if that is impossible."""
        joined = self._joined
        if joined is None or self.states or self.changed.keys() != joined.layout.places.keys():
            return False
        found = joined.layout.filled(has, values)
        if found is None:
            return False
        numbers, positions = found
        new = torch.cat([value.flatten() for value in values.values()])
        joined.vector.index_copy_(0, numbers, new.index_select(0, positions))
        self._taken = {place: True for place in self._taken if place[1] not in values}
        return True

    def value(self, layer: str, key: str) -> Tensor | int | None:
        """What a layer remembers under this key now; None if there is nothing."""
        if layer in self.states or self._joined is None:
            return self.state(layer).get(key)
        is_there = key in self._joined.layout.places[layer] and (layer, key) not in self._taken
        return self._joined.view(layer, key) if is_there else None

    def count(self, layer: str) -> int:
        """How many passes of the stream have called this layer, including this one."""
        state = self.state(layer)
        passes = state.get("passes", 0)
        if layer not in self.counted:
            self.counted[layer] = True
            passes = passes + 1
            state["passes"] = passes
        return passes  # type: ignore[return-value]

    def after(self, strategy: Strategy, output: Any, shared: Adaptation, rows: StreamRows | None) -> None:
        """Tell the strategy what the model has returned."""
        if (self.states or self.changed) and not self.is_rejected:
            strategy.after_pass(ChangedStates(self) if self.changed else self.states, output, shared)

    def end(self, *, keep: bool) -> None:
        """Keep the new states, or drop them."""
        if keep and (self.states or self.changed) and not self.is_repeated and not self.is_rejected:
            can_be_repeated = is_tracing() or not torch.is_inference_mode_enabled()
            if self.changed and not self.states and not self._taken:
                assert self._before is not None
                self.stream.keep(self._finite_vector(), self._before if can_be_repeated else {})
            else:
                for layer in self.changed:
                    self.state(layer)
                # What a CUDA graph changes in place is copied: it belongs to the next stream that the graph predicts.
                old = self.stream.copied_states() if self.stream.is_captured else self.stream.states
                states = {**old, **(self.states if is_tracing() else self._finite_states())}
                self.stream.keep(states, old if can_be_repeated else {})
        if self.is_locked:
            self.is_locked = False
            self.stream.lock.release()

    def _finite_vector(self) -> JoinedStates:
        """The new states, or the old ones if one of the new ones is not finite, for which the GPU is not waited for."""
        assert self._before is not None
        assert self._joined is not None
        new = self._joined.vector
        is_finite = torch.linalg.vector_norm(new, math.inf) < math.inf
        return JoinedStates(self._joined.layout, torch.where(is_finite, new, self._before.vector))

    def _finite_states(self) -> dict[str, LayerState]:
        """The new states, or on a GPU the old ones if one of the new ones is not finite.

        The GPU is waited for only while a stream begins or a strategy counts passes. On a CPU, rows that are not finite
        were left out already (see `Observation`).
        """
        old = self.stream.states
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[str, str, Tensor]]] = {}
        for name, state in self.states.items():
            for key, value in state.items():
                if isinstance(value, Tensor) and value.is_cuda:
                    groups.setdefault((value.device, value.dtype), []).append((name, key, value))
        for entries in groups.values():
            new = _joined([value for _, _, value in entries])
            is_finite = new.isfinite().all()
            if self.counted or any(key not in old.get(name, {}) for name, key, _ in entries):
                if not bool(is_finite):
                    return {}
                continue
            before = _joined([old[name][key] for name, key, _ in entries]).to(new)  # type: ignore[misc]
            kept = torch.where(is_finite, new, before).split([value.numel() for _, _, value in entries])
            for (name, key, value), part in zip(entries, kept, strict=True):
                self.states[name][key] = part if value.dim() == 1 else part.view_as(value)
        return self.states


class ChangedStates(Mapping[str, LayerState]):
    """The states of the layers that a pass has called, some of which are in its vector.

    A layer that is asked for gets a copy of its own; `value` and `fill` work in the vector.
    """

    def __init__(self, own_pass: Pass) -> None:
        self.value, self.fill = own_pass.value, own_pass.fill
        self._pass = own_pass

    def __getitem__(self, layer: str) -> LayerState:
        if layer not in self._pass.changed and layer not in self._pass.states:
            raise KeyError(layer)
        return self._pass.state(layer)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._pass.states, *(layer for layer in self._pass.changed if layer not in self._pass.states)])

    def __len__(self) -> int:
        return len(self._pass.changed.keys() | self._pass.states.keys())


def _joined(tensors: list[Tensor]) -> Tensor:
    """All values as one vector. Most states are vectors, and a flatten for each of them would take time."""
    return torch.cat([t if t.dim() == 1 else t.flatten() for t in tensors])
