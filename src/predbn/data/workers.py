"""Worker processes: what they are given to do, how they end, and the error if one of them is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from predbn.common import DataError


def in_processes(
    function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], processes: int, start: Callable[[], object]
) -> Iterator[Any]:
    """function(*job) for all jobs in new processes, in the order in which they finish; each calls `start` first."""
    with killed_worker_is_an_error(), ProcessPoolExecutor(processes, get_context("spawn"), _start, (start,)) as pool:
        futures: list[Future[Any]] = [pool.submit(function, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start(start: Callable[[], object]) -> None:
    end_with_parent()
    start()


def end_with_parent() -> None:
    """Make this worker process end at Ctrl-C, without a traceback of its own, and when its parent has ended.

    A parent that is killed cannot end its workers. They would wait for work forever, and a forked one would keep its
    copy of the lock on the folder.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def killed_worker_is_an_error() -> Iterator[None]:
    """Say what to do if the system has killed a worker process."""
    try:
        yield
    except BrokenProcessPool:
        raise DataError(
            "a worker process was killed, perhaps because memory ran out: run the same command again with fewer "
            "processes; it keeps what is finished."
        ) from None
