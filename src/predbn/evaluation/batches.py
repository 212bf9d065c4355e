"""Prediction batches from a stream of blocks: blocks are cut to size, and on a GPU made ahead of time.

A block is many images that are corrupted together. Some corruptions run on the host, and a GPU that waits for them is
idle. Therefore one block is always being made while the one before it is predicted, within a split and across splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

from .source import AnyBatch

T = TypeVar("T")


class Reiterable(Generic[T]):
    """A stream that can be iterated over any number of times; `start` starts it."""

    def __init__(self, start: Callable[[], Iterator[T]]) -> None:
        self._start = start

    def __iter__(self) -> Iterator[T]:
        return self._start()


class Rebatcher:
    """Cuts a stream of blocks into batches of one size, so that one stream serves several batch sizes.

    If the size divides that of the blocks, batches are views of them; otherwise the rest of a block waits for the next
    one. It holds less than one batch.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rest: AnyBatch | None = None

    def push(self, block: AnyBatch) -> list[AnyBatch]:
        """The batches that are complete with this block."""
        rows = block if self._rest is None else _concatenate(self._rest, block)
        whole = len(rows.labels) // self.size * self.size
        self._rest = _slice(rows, whole, len(rows.labels)) if whole < len(rows.labels) else None
        return [_slice(rows, start, start + self.size) for start in range(0, whole, self.size)]

    def flush(self) -> list[AnyBatch]:
        """The last, smaller batch, if there is one."""
        batches = [] if self._rest is None else [self._rest]
        self._rest = None
        return batches


def block_size(sizes: list[int], values: int, max_values: int, min_batches: int) -> int:
    """How many images to corrupt at a time: a multiple of the largest batch, with about `max_values` values if an image
    has `values` of them, and at least `min_batches` batches."""
    largest = max(sizes)
    return largest * max(1, min_batches, max_values // (values * largest))


def _slice(rows: AnyBatch, start: int, stop: int) -> AnyBatch:
    return type(rows)(*(tensor[start:stop] for tensor in rows))


def _concatenate(first: AnyBatch, second: AnyBatch) -> AnyBatch:
    return type(first)(*(torch.cat(pair) for pair in zip(first, second, strict=True)))


_Made = tuple[AnyBatch, torch.cuda.Event] | None
"""A block and the event of its completion; None at the end of the stream."""


class Prefetcher:
    """Makes blocks for one GPU, on a thread and a CUDA stream of their own. A stream that is dropped costs one block.

    What blocks are made from must be on the device before: the CUDA stream does not wait for others.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, "predbn-prefetch")
        self._stream = torch.cuda.Stream(device)
        torch.cuda.synchronize(device)

    def start(self, blocks: Callable[[], Iterator[AnyBatch]]) -> Iterator[AnyBatch]:
        """The blocks; making the first one starts now."""
        iterators: list[Iterator[AnyBatch]] = []

        def make_next() -> _Made:
            with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                if not iterators:
                    iterators.append(blocks())
                block = next(iterators[0], None)
                return None if block is None else (block, self._stream.record_event())

        return self._blocks(make_next, self._thread.submit(make_next))

    def _blocks(self, make_next: Callable[[], _Made], future: Future[_Made]) -> Iterator[AnyBatch]:
        while made := future.result():
            block, ready = made
            stream = torch.cuda.current_stream()
            stream.wait_event(ready)
            for tensor in block:
                if tensor.is_cuda:
                    # The allocator may reuse the memory only when this stream, too, is done with it.
                    tensor.record_stream(stream)
            future = self._thread.submit(make_next)
            yield block
