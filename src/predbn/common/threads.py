"""Threads that each run torch on one core, and work done ahead on a thread.

A batch is processed in pieces that fit a core's cache, each on its own thread. If torch splits every single operation
over the cores instead, they wait for each other after each one, hundreds of times per batch, and a core that another
process is using delays all of them.

Sums in floating point depend on how many threads share them. A forward pass that always runs on one core gives the
same bits on a laptop and on a large machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["each_on_one_core", "map_ahead", "map_threads", "threads_for"]

T = TypeVar("T")
R = TypeVar("R")

_here = threading.local()
_lock = threading.Lock()
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _start(barrier: threading.Barrier) -> None:
    """Make torch single-threaded on this thread. The setting is per thread once it has been read."""
    _here.worker = True
    torch.get_num_threads()
    barrier.wait()
    torch.set_num_threads(1)
    barrier.wait()


def _pool(size: int) -> ThreadPoolExecutor:
    """The pool of that size in this process. A forked process has lost its parent's threads and gets a new pool.

    torch uses the number last set on any thread for threads that start later, so it is set back afterwards.
    """
    key = (os.getpid(), size)
    with _lock:
        if key not in _pools:
            threads = torch.get_num_threads()
            barrier = threading.Barrier(size + 1)
            pool = ThreadPoolExecutor(size, "predbn-shift", _start, (barrier,))
            for _ in range(size):
                pool.submit(lambda: None)
            barrier.wait()
            barrier.wait()
            torch.set_num_threads(threads)
            _pools[key] = pool
        return _pools[key]


def map_threads(function: Callable[[T], R], items: Iterable[T], *, most: int | None = None) -> list[R]:
    """[function(item) for item in items] on as many threads as torch may use, `most` at the most.

    A call from within such a thread runs serially.
    """
    work = list(items)
    size = torch.get_num_threads() if most is None else min(most, torch.get_num_threads())
    if len(work) < 2 or size < 2 or getattr(_here, "worker", False):
        return [function(item) for item in work]
    return list(_pool(size).map(function, work))


def threads_for(height: int, width: int) -> int:
    """How many threads are worth using for OpenCV calls on images of that size.

    Every call releases the interpreter lock and has to get it back. If the call itself takes ten microseconds, many
    threads spend their time waiting for each other: 16 of them need several times as long as one.
    """
    return max(1, height * width // 4096)


def each_on_one_core(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """[function(item) for item in items], every call on one core, as many at once as torch may use."""
    work, threads = list(items), torch.get_num_threads()
    if len(work) > 1 and threads > 1:
        return map_threads(function, work)
    torch.set_num_threads(1)
    try:
        return [function(item) for item in work]
    finally:
        torch.set_num_threads(threads)


def map_ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """map(function, items), with the next result computed on a thread while the caller uses the last one.

    At most two results are in memory. An error is raised when its result is asked for.
    """
    with ThreadPoolExecutor(1, "predbn-ahead") as thread:
        coming = None
        for item in items:
            ready, coming = coming, thread.submit(function, item)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()
