"""How one pass through a model changes what a stream remembers.

A *pass* is one call of the module that was given to `adapt`: two hooks on that module mark where it begins and ends.
During the pass every layer works on a copy of its state. The copies replace the states when the call has returned, all
at once, and are dropped if it raised. A layer that is called on its own, outside of such a call, is a pass by itself.
Passes of several threads on one stream take turns, as soon as they touch its state.

torch.compile follows neither locks nor frames. A compiled graph changes states at its end, which comes to the same.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from .kernels import is_tracing
from .stream_blocks import current_stream

if TYPE_CHECKING:
    from .adapted_layer import Adaptation

LayerState: TypeAlias = dict[str, "Tensor | int"]


class Stream:
    """The states of all layers for one source of data (a camera, a region, a user).

    `previous` holds the states before the last pass: activation checkpointing runs parts of that pass once more.
    """

    def __init__(self) -> None:
        self.states: dict[str, LayerState] = {}
        self.previous: dict[str, LayerState] = {}
        self.lock = threading.RLock()

    def clear(self) -> None:
        """Forget everything, once no other thread is in a pass."""
        with self.lock:
            self.states, self.previous = {}, {}

    def state(self, layer: str) -> LayerState:
        return self.states.setdefault(layer, {})

    def __getstate__(self) -> dict[str, Any]:
        """Locks cannot be copied."""
        return {"states": self.states, "previous": self.previous}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.RLock())


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
        # Only for a pass that was begun by a hook, outside of compiled graphs.
        self.frame: FrameType | None = None
        self.exception: BaseException | None = None
        self.depth = 1

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

    def end(self, *, keep: bool) -> None:
        """Keep the new states, or drop them."""
        if keep and self.states and not self.is_repeated and not self.is_rejected:
            states = self.states if is_tracing() else self._finite_states()
            self.stream.previous = self.stream.states
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
            new = torch.cat([value.flatten() for _, _, value in entries])
            is_finite = new.isfinite().all()
            if self.counted or any(key not in old.get(name, {}) for name, key, _ in entries):
                if not bool(is_finite):
                    return {}
                continue
            before = torch.cat([old[name][key].flatten().to(new) for name, key, _ in entries])  # type: ignore[union-attr]
            kept = torch.where(is_finite, new, before).split([value.numel() for _, _, value in entries])
            for (name, key, value), part in zip(entries, kept, strict=True):
                self.states[name][key] = part.view_as(value)
        return self.states


class PassHook:
    """Begins or ends a pass. It is called before or after the module that was given to `adapt`."""

    def __init__(self, adaptation: Adaptation, *, ends: bool) -> None:
        self.adaptation = adaptation
        self.ends = ends

    def __call__(self, module: nn.Module, inputs: Any, output: Any = None) -> None:
        adaptation = self.adaptation
        if is_tracing():
            if self.ends and adaptation.traced_pass is not None:
                adaptation.traced_pass.end(keep=True)
            adaptation.traced_pass = None if self.ends else Pass(current_stream(adaptation))
        elif self.ends:
            self._end()
        else:
            self._begin()

    def _begin(self) -> None:
        frame, current = sys._getframe(2), self.adaptation.thread.current_pass
        if current is not None and _is_on_stack(current.frame, frame):  # the module calls itself
            current.depth += 1
            return
        if current is not None:  # the last call ended in an interrupt, after which no hook is called
            current.end(keep=False)
        current = Pass(current_stream(self.adaptation))
        current.frame, current.exception = frame, sys.exc_info()[1]
        self.adaptation.thread.current_pass = current

    def _end(self) -> None:
        current = self.adaptation.thread.current_pass
        if current is None:
            return
        # The hook is called after an error as well. Only then is there an exception that was not there before.
        current.is_rejected |= sys.exc_info()[1] is not current.exception
        current.depth -= 1
        if current.depth == 0:
            self.adaptation.thread.current_pass = None
            current.end(keep=True)


def _is_on_stack(frame: FrameType | None, caller: FrameType | None) -> bool:
    while caller is not None and caller is not frame:
        caller = caller.f_back
    return caller is not None


class PassOfThread(threading.local):
    """The pass that a thread is in."""

    current_pass: Pass | None = None


def current_pass(adaptation: Adaptation) -> Pass | None:
    """The pass that this call of a layer is part of; None if the layer is called on its own."""
    return adaptation.traced_pass if is_tracing() else adaptation.thread.current_pass


def hook_passes(module: nn.Module, adaptation: Adaptation) -> None:
    module.register_forward_pre_hook(PassHook(adaptation, ends=False), prepend=True)
    module.register_forward_hook(PassHook(adaptation, ends=True), always_call=True)


def hooked_passes(model: nn.Module) -> list[tuple[nn.Module, Adaptation]]:
    """The modules of a model at which passes begin."""
    hooks = ((module, hook) for module in model.modules() for hook in module._forward_pre_hooks.values())
    return [(module, hook.adaptation) for module, hook in hooks if isinstance(hook, PassHook)]


def unhook_passes(model: nn.Module) -> None:
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(hook, PassHook)]:
                del hooks[key]
                module._forward_hooks_always_called.pop(key, None)
