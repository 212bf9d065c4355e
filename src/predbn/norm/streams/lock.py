"""The lock of a stream, which an interrupted call does not keep.

After an error PyTorch calls the hook that ends a call, but not after Ctrl-C or SystemExit, and these may come between
any two steps of Python, such as taking a lock and entering the block that releases it. So a lock knows which functions
hold it, by their frames, and whoever waits for it looks whether these are still running. Only the locks of C, in their
own `with` statement, are safe: those of Python, such as `threading.Condition`, stay locked after an interrupt.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType

_PATIENCE = 0.1
"""After so many seconds a waiting thread looks again, in case that the call was interrupted meanwhile."""
_LOOKS = 3
"""A generator that yields while the stack is walked hides its callers."""


class StreamLock:
    """A re-entrant lock. Functions hold it, at most until they end; a `with` statement must not be in a generator."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._held: tuple[int, tuple[FrameType, ...]] = 0, ()
        """By which thread, and by which functions. Replaced in one step, and only under the mutex."""
        self._waiting: list[threading.Lock] = []
        """Locked; releasing one wakes its thread."""

    def acquire(self, frame: FrameType) -> None:
        """Hold the lock for this function, which is running."""
        thread = threading.get_ident()
        while True:
            with self._mutex:
                frames = self._running()
                if not frames or self._held[0] == thread:
                    self._held = thread, (*frames, frame)
                    return
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append(turn)
            turn.acquire(timeout=_PATIENCE)

    def release(self, frame: FrameType) -> None:
        """Does nothing if another thread has the lock by now, because the call was interrupted."""
        with self._mutex:
            thread, frames = self._held
            if thread != threading.get_ident() or frame not in frames:
                return
            last = len(frames) - 1 - frames[::-1].index(frame)
            self._held = thread, (*frames[:last], *frames[last + 1 :])
            if len(frames) == 1:
                waiting, self._waiting = self._waiting, []
                for turn in waiting:
                    turn.release()

    def _running(self) -> tuple[FrameType, ...]:
        """The functions that hold the lock, without those that have ended."""
        thread, frames = self._held
        return tuple(frame for frame in frames if _is_running(frame, thread))

    def __enter__(self) -> None:
        self.acquire(sys._getframe(1))

    def __exit__(self, *exception: object) -> None:
        self.release(sys._getframe(1))


def _is_running(frame: FrameType, thread: int) -> bool:
    return any(is_on_stack(frame, sys._current_frames().get(thread)) for _ in range(_LOOKS))


def is_on_stack(frame: FrameType | None, caller: FrameType | None) -> bool:
    """Whether a frame is this one or one of its callers."""
    while caller is not None and caller is not frame:
        caller = caller.f_back
    return caller is not None
