"""One process, or several started by torchrun: who this one is, and sums over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Processes", "joined"]


@dataclass(frozen=True)
class Processes:
    """This process among all of them, and the device that it works on."""

    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and prints."""
        return self.rank == 0

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, in each of them."""
        if self.count > 1:
            dist.all_reduce(numbers)
        return numbers

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Give all processes what the first one has."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """The processes that torchrun started, joined for the length of a block; without torchrun this one alone.

    `device` is cuda or cpu; with cuda each process takes the GPU of its number on its machine.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if count == 1:
        yield Processes(0, 1, place)
        return
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), count, place)
    finally:
        dist.destroy_process_group()
