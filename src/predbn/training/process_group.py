"""One process, or several that torchrun started: the rank of this one, and sums over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class ProcessGroup:
    """The device of this process, its rank, and the number of processes."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copy the tensors of the first process to all others."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_process_group(device: torch.device) -> Iterator[ProcessGroup]:
    """The group of the processes that torchrun started; without torchrun, a group of this process alone.

    With the device "cuda", each process uses the GPU of its local rank.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if size == 1:
        yield ProcessGroup(device)
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield ProcessGroup(device, dist.get_rank(), size)
    finally:
        dist.destroy_process_group()
