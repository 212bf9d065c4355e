"""Work on one core an item.

Sums in floating point depend on how many threads share them. A forward pass that always runs on one core gives the
same bits on a laptop and on a large machine, and several of them side by side use the cores better than one pass
spread over all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch

from predbn.shifts.workers import map_threads

__all__ = ["each_on_one_core"]

T = TypeVar("T")
R = TypeVar("R")


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
