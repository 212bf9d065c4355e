"""Blocks made on a thread and a CUDA stream of their own while the ones before them are predicted.

Some corruptions run on the host, and a GPU that waits for them does nothing. One block is always being made ahead,
within a split and from a split to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from .rebatch import AnyBatch

__all__ = ["Ahead"]

_Made = tuple[AnyBatch, torch.cuda.Event] | None


class Ahead:
    """Makes blocks for one GPU. What was begun and is not wanted in the end costs one block.

    What blocks are made from must be on the device before: its stream does not wait for others.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, "predbn-ahead")
        self._stream = torch.cuda.Stream(device)
        torch.cuda.synchronize(device)

    def begin(self, blocks: Callable[[], Iterator[AnyBatch]]) -> Iterator[AnyBatch]:
        """The blocks, the first of which is being made from now on."""
        return _Blocks(self, blocks)

    def submit(self, make: Callable[[], AnyBatch | None]) -> Future[_Made]:
        """Make a block, after those that were asked for before it."""
        return self._thread.submit(self._make, make)

    def _make(self, make: Callable[[], AnyBatch | None]) -> _Made:
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            block = make()
            return None if block is None else (block, self._stream.record_event())


class _Blocks(Iterator[AnyBatch]):
    def __init__(self, ahead: Ahead, blocks: Callable[[], Iterator[AnyBatch]]) -> None:
        self._ahead, self._blocks = ahead, blocks
        self._iterator: Iterator[AnyBatch] | None = None
        self._coming = ahead.submit(self._next)

    def _next(self) -> AnyBatch | None:
        if self._iterator is None:
            self._iterator = self._blocks()
        return next(self._iterator, None)

    def __next__(self) -> AnyBatch:
        made = self._coming.result()
        if made is None:
            raise StopIteration
        block, ready = made
        user = torch.cuda.current_stream()
        user.wait_event(ready)
        for tensor in block:
            if tensor.is_cuda:
                tensor.record_stream(user)
        self._coming = self._ahead.submit(self._next)
        return block
