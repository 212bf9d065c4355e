"""Work that the processes of a group share: each does its part, and all learn the results or fail together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from predbn.common import AdaptationError, first_line

T = TypeVar("T")


def is_distributed() -> bool:
    """Whether this process belongs to a group of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first_process(process_group: Any = None) -> bool:
    """Whether this process has rank 0 in its group, or is alone."""
    return not is_distributed() or dist.get_rank(process_group) == 0


def in_each_process(work: Callable[[], T], *, sync: bool, process_group: Any = None) -> list[T]:
    """What `work` returns in each process of the group, in the order of their ranks; without `sync`, in this one.

    `work` itself must not communicate: the parts may differ in length, and processes meet only at its end. If it fails
    in one process, it fails in all, so that none waits for another forever.
    """
    if not (sync and dist.is_available() and dist.is_initialized()):
        return [work()]
    error: BaseException | None = None
    result: T | None = None
    try:
        result = work()
    except BaseException as raised:
        error = raised
    reason = None if error is None else f"{type(error).__name__}: {first_line(error)}"
    outcomes: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(outcomes, (result, reason), group=process_group)
    if error is not None:
        raise error
    for rank, (_, failure) in enumerate(outcomes):
        if failure is not None:
            raise AdaptationError(
                f"process {rank} could not measure its part of the data ({failure}), so that nothing was changed; "
                "its own error says more"
            )
    return [part for part, _ in outcomes]
