"""Pools of worker processes that leave Ctrl-C to their parent, and do not outlive it.

A terminal sends Ctrl-C to every process of a command. The workers here do not get it, so that only the parent answers.
When the parent is killed, nobody is left to stop the workers: each of them waits for that on a thread, and ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import context, parent_process, process, resource_tracker
from multiprocessing.connection import wait
from typing import Any, Literal

from .errors import PredbnError


@contextmanager
def process_pool(
    count: int,
    method: Literal["fork", "spawn"] = "spawn",
    *,
    initializer: Callable[..., object] | None = None,
    arguments: tuple[Any, ...] = (),
    error: type[PredbnError] = PredbnError,
) -> Iterator[ProcessPoolExecutor]:
    """A pool of worker processes, each of which calls `initializer(*arguments)` first.

    At the end of the block the workers are killed. If it raises, what they are doing is lost, so they have to write
    files atomically. If the system has killed one of them, that is an `error`. Where processes cannot be forked they
    are spawned.

    They are not asked to end, because an idle worker holds the lock of the queue: if that one has been killed, the
    others would wait for it for ever, and the pool for them.
    """
    workers = _Forked() if method == "fork" and sys.platform != "win32" else _Spawned()
    with ProcessPoolExecutor(count, workers, initializer, arguments) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise error(
                "a worker process was killed, probably because the memory is full: use fewer processes, and run the "
                "same command again; finished files are kept."
            ) from None
        finally:
            # A pool told not to wait forgets its own thread. If that still runs when the interpreter ends, the two can
            # close and write to the same pipe, which Python 3.11 prints as an error.
            thread: threading.Thread | None = getattr(pool, "_executor_manager_thread", None)
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers.started:
                worker.kill()
            if thread is not None:
                thread.join()


def end_with_parent() -> None:
    """End this process when the one that has started it ends, whatever it is doing."""
    parent = parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), name="predbn-parent", daemon=True).start()


class _Worker(process.BaseProcess):
    """A process that Ctrl-C does not reach and that ends with its parent."""

    def start(self) -> None:
        with _interrupts_blocked():
            super().start()

    def run(self) -> None:
        end_with_parent()
        super().run()


class _SpawnedWorker(_Worker, context.SpawnProcess):
    pass


class _Spawned(context.SpawnContext):
    """Starts workers in new interpreters, and knows which."""

    def __init__(self) -> None:
        self.started: list[_Worker] = []

    def Process(self, *arguments: Any, **options: Any) -> _Worker:  # type: ignore[override]
        self.started.append(_SpawnedWorker(*arguments, **options))
        return self.started[-1]


if sys.platform != "win32":

    class _ForkedWorker(_Worker, context.ForkProcess):
        pass

    class _Forked(context.ForkContext):
        """Forks workers, and knows which."""

        def __init__(self) -> None:
            self.started: list[_Worker] = []

        def Process(self, *arguments: Any, **options: Any) -> _Worker:  # type: ignore[override]
            self.started.append(_ForkedWorker(*arguments, **options))
            return self.started[-1]


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT on this thread; a process that is started meanwhile inherits that, from its first moment on.

    An interrupt that comes meanwhile arrives at the end of the block.
    """
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
