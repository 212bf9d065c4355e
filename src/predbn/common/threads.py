"""Thread pools in which torch uses one core per thread, and prefetching on a thread.

A batch is processed in pieces that fit a core's cache, each on its own thread. If torch splits every single operation
over the cores instead, they wait for each other after each one, hundreds of times per batch, and a core that another
process is using delays all of them.

Floating-point sums depend on how many threads share them. A forward pass that always runs on one core gives the same
bits on a laptop and on a large machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

_thread_state = threading.local()
_lock = threading.Lock()
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _start_worker(barrier: threading.Barrier) -> None:
    """Make torch single-threaded on this thread.

    torch keeps the number of threads per thread once it has been read there. All workers therefore read it before the
    first of them sets it.
    """
    _thread_state.is_worker = True
    torch.get_num_threads()
    barrier.wait()
    torch.set_num_threads(1)
    barrier.wait()


def _pool(size: int) -> ThreadPoolExecutor:
    """The pool of that size of this process. A forked process has none of its parent's threads and gets a new pool.

    Threads that start later inherit the number that was last set on any thread, so it is set back at the end.
    """
    key = (os.getpid(), size)
    with _lock:
        if key not in _pools:
            threads = torch.get_num_threads()
            barrier = threading.Barrier(size + 1)
            pool = ThreadPoolExecutor(size, "predbn-map", _start_worker, (barrier,))
            for _ in range(size):
                pool.submit(lambda: None)
            barrier.wait()
            barrier.wait()
            torch.set_num_threads(threads)
            _pools[key] = pool
        return _pools[key]


def map_threads(function: Callable[[T], R], items: Iterable[T], *, max_threads: int | None = None) -> list[R]:
    """[function(item) for item in items] on as many threads as torch may use, or `max_threads` if that is fewer.

    A call from within such a thread runs serially.
    """
    work = list(items)
    size = torch.get_num_threads() if max_threads is None else min(max_threads, torch.get_num_threads())
    if len(work) < 2 or size < 2 or getattr(_thread_state, "is_worker", False):
        return [function(item) for item in work]
    return list(_pool(size).map(function, work))


def each_on_one_core(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """[function(item) for item in items], each call on one core and as many at once as torch may use threads."""
    work, threads = list(items), torch.get_num_threads()
    if len(work) > 1 and threads > 1:
        return map_threads(function, work)
    torch.set_num_threads(1)
    try:
        return [function(item) for item in work]
    finally:
        torch.set_num_threads(threads)


def map_ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """map(function, items) with prefetching: the next result is computed on a thread while the caller uses the last.

    At most two results are in memory. An error is raised when its result is due.
    """
    with ThreadPoolExecutor(1, "predbn-ahead") as executor:
        pending = None
        for item in items:
            previous, pending = pending, executor.submit(function, item)
            if previous is not None:
                yield previous.result()
        if pending is not None:
            yield pending.result()
