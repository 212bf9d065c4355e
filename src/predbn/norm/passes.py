"""How one pass through a model changes what a stream remembers.

A *pass* is one call of the module that was given to `adapt` (see `model_calls.py`). In a pass every layer works on a
copy of its state. The copies replace the states when the call has returned, all at once, and are dropped if it
raised. A layer that is called on its own, outside of such a call, is a pass by itself. Passes of several threads on one
stream take turns, as soon as they touch its state.

torch.compile does not follow locks. A compiled graph changes states at its end, which comes to the same.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .kernels import is_tracing
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
    more; in inference mode it cannot. `number` is the order in which streams are locked.
    `users` counts the open blocks of the stream, `is_saved` says that it is in a store as it is here, and `is_removed`
    that nobody can open it again. `is_captured` says that a CUDA graph changes the tensors in place (`capture.py`).
    """

    def __init__(self, states: States | None = None) -> None:
        self.states: States = {} if states is None else states
        self.previous: States = {}
        self.table: StreamTable | None = None
        self.row = -1
        self.number = next(_numbers)
        self.users = 0
        self.is_saved = False
        self.is_captured = False
        self.is_removed = False
        self.lock = threading.RLock()

    def clear(self) -> None:
        """Forget everything, once no other thread is in a pass."""
        with self.lock:
            if self.table is not None:
                self.table.remove(self.row)
            self.states, self.previous, self.table, self.is_saved = {}, {}, None, False

    def state(self, layer: str) -> LayerState:
        return self.states.setdefault(layer, {})

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
        return {key: value for key, value in self.__dict__.items() if key != "lock"} | {"users": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
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

    def _copied_state(self, layer: str) -> LayerState:
        if not self.is_locked and not self.is_repeated and not is_tracing():
            self.stream.lock.acquire()
            self.is_locked = True
            self.stream.leave_table()
        states = self.stream.previous if self.is_repeated else self.stream.states
        return dict(states.get(layer, {}))

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
        if self.states and not self.is_rejected:
            strategy.after_pass(self.states, output, shared)

    def end(self, *, keep: bool) -> None:
        """Keep the new states, or drop them."""
        if keep and self.states and not self.is_repeated and not self.is_rejected:
            states = self.states if is_tracing() else self._finite_states()
            can_be_repeated = is_tracing() or not torch.is_inference_mode_enabled()
            self.stream.previous = self.stream.states if can_be_repeated else {}
            self.stream.states = {**self.stream.states, **states}
        if self.is_locked:
            self.is_locked = False
            self.stream.lock.release()

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


def _joined(tensors: list[Tensor]) -> Tensor:
    """All values as one vector. Most states are vectors, and a flatten for each of them would take time."""
    return torch.cat([t if t.dim() == 1 else t.flatten() for t in tensors])
