"""Work done while the caller is busy with what came before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["map_ahead"]

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """map(function, items), but one result is always being made, on a thread, while the last one is used.

    No more than that one is held: memory is that of two results. An error comes when its result is asked for.
    """
    with ThreadPoolExecutor(1, "predbn-ahead") as thread:
        coming = None
        for item in items:
            ready, coming = coming, thread.submit(function, item)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()
