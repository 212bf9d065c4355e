"""Which row of a batch belongs to which stream, in memory that a CUDA graph reads.

A graph has one shape: so many rows and segments, and no segment with more than so many rows. Batches of all sizes would
need a graph each; therefore a batch may be padded to one of a few shapes (2, 3, 4, 6, 8, 12, … rows and segments) with
segments of its own, which repeat the first row. Nothing of them reaches a stream.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from predbn.norm import Bucket, RowOrder, Segments, StreamSegments


class SegmentShape(NamedTuple):
    """What is the same for all batches of a graph.

    rows             how many rows there are, with padding
    padded_segments  how many segments there are with padding
    largest          an upper bound for the rows of a segment, a power of two
    has_single       whether a segment has a single row, which has no variance where an example is a single value
    """

    rows: int
    padded_segments: int
    largest: int
    has_single: bool
    is_padded: bool

    @classmethod
    def of(cls, segments: StreamSegments, *, pad: bool) -> SegmentShape:
        rows, count = segments.examples, segments.count
        if pad and (padded_size(rows), padded_size(count)) != (rows, count):
            padded_count = padded_size(count + 1)
            # A single row may have no variance: there are two in each segment unless the batch has such segments too.
            rows_each = 1 if 1 in segments.sizes else 2
            padded_rows = padded_size(rows + rows_each * (padded_count - count))
            sizes = padded(segments, padded_rows, padded_count).sizes
            return cls(padded_rows, padded_count, padded_power(max(sizes)), 1 in sizes, pad)
        return cls(rows, count, padded_power(max(segments.sizes)), 1 in segments.sizes, pad)


def padded_size(number: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    power = padded_power(number)
    return power * 3 // 4 if power > 2 and number <= power * 3 // 4 else power


def padded_power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


def padded(segments: StreamSegments, rows: int, count: int) -> StreamSegments:
    """The same with more rows, which belong to more segments in turn."""
    extra = count - segments.count
    positions = [segments.count + i % extra for i in range(rows - segments.examples)] if extra else []
    return StreamSegments([*segments.positions, *positions], count)


class StaticSegments(Segments):
    """The segments of a graph. `fill` copies those of a batch into its memory."""

    def __init__(self, shape: SegmentShape, device: torch.device) -> None:
        # What the host asks about sizes while a pass is recorded has the same answer for all batches of the shape.
        sizes = [shape.largest] * shape.padded_segments
        if shape.has_single:
            sizes[0] = 1
        super().__init__(shape.padded_segments, shape.rows, sizes, None)
        self._shape = shape
        rows, count = shape.rows, self.count
        self._long = torch.zeros(rows + count, dtype=torch.long, device=device)
        self._int = torch.zeros(2 * rows + count + 1, dtype=torch.int32, device=device)
        order, starts, positions = self._int.split([rows, count + 1, rows])
        self._order = RowOrder(order, starts, positions, shape.largest)

    def fill(self, segments: StreamSegments) -> None:
        """Copy the segments of a batch into the memory."""
        batch = padded(segments, self._shape.rows, self.count)
        order, starts, positions, _ = batch.row_order(torch.device("cpu"))
        # Not from memory that is used again: the copy may not have happened yet when the next batch comes.
        for memory, values in (
            (self._long, torch.tensor([*batch.positions, *batch.sizes])),
            (self._int, torch.cat([order, starts, positions])),
        ):
            memory.copy_(values.pin_memory() if memory.is_cuda else values, non_blocking=True)

    def index(self, like: Tensor) -> Tensor:
        return self._long[: self.examples]

    def size_tensor(self, like: Tensor) -> Tensor:
        return self._long[self.examples :, None]

    def _find_row_order(self, device: torch.device) -> RowOrder:
        return self._order

    def buckets(self, device: torch.device) -> list[Bucket]:
        return self._find_buckets(device)  # which are part of the graph, and must not be kept

    def _find_buckets(self, device: torch.device) -> list[Bucket]:
        """All segments, padded to the largest size."""
        number = torch.arange(self._shape.largest, device=self._long.device)
        is_row = number < self.size_tensor(self._long)
        starts = self._order.starts[:-1, None].long()
        rows = self._order.order.long()[torch.where(is_row, starts + number, starts).flatten()]
        segments = torch.arange(self.count, device=self._long.device)
        return [Bucket(segments, rows, is_row.flatten(), self._shape.largest)]
