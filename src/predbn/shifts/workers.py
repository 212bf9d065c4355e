"""Threads that each run torch on one core.

A batch is worked off in pieces that fit a core's cache. Letting torch split every single operation over
the cores makes them wait for each other after each one, hundreds of times a batch, and a core that another
process has taken holds up all of them. Whole pieces on separate threads meet once, at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["map_threads", "threads_for"]

T = TypeVar("T")
R = TypeVar("R")

_here = threading.local()
_lock = threading.Lock()
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _start(barrier: threading.Barrier) -> None:
    """Make torch single-threaded on this thread: its setting is per thread once it has been read."""
    _here.worker = True
    torch.get_num_threads()
    barrier.wait()
    torch.set_num_threads(1)
    barrier.wait()


def _pool(size: int) -> ThreadPoolExecutor:
    """The pool of that size in this process; after a fork the threads of the parent are gone, so a new one.

    torch also remembers the last number set on any thread for threads yet to come: it is put back.
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
    """[function(item) for item in items] on the threads torch may use, or `most`; serially within one of them."""
    work = list(items)
    size = torch.get_num_threads() if most is None else min(most, torch.get_num_threads())
    if len(work) < 2 or size < 2 or getattr(_here, "worker", False):
        return [function(item) for item in work]
    return list(_pool(size).map(function, work))


def threads_for(height: int, width: int) -> int:
    """How many threads pay for calls of OpenCV on pictures of that size.

    Every call lets go of the interpreter and has to get it back. Where the call itself takes ten microseconds, many
    threads spend their time waiting for each other: on 16 cores they need several times as long as one alone.
    """
    return max(1, height * width // 4096)
