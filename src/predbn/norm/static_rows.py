"""Which rows belong to which stream, in memory that a recorded pass reads.

A graph has one shape: so many rows and streams, and no stream with more than so many rows. What differs from batch to
batch is copied into its memory before a replay: the stream of each row, the sizes of the streams, and their *entries*,
which are the numbers of their rows, those of the first stream first.

Batches of all sizes would need a graph each. With `pad`, a batch is filled up to one of a few shapes:

    rows      the first row is repeated; no stream has these rows among its entries, and their results are dropped
    streams   the smallest stream is repeated, with the same entries, so that it needs no rows of its own

So nothing of what fills up a batch reaches a stream, and nothing happens there that does not happen in the batch too.
Sizes are powers of two and 3/4 of these. A number is raised by less than half of itself, and the smallest of S streams
of N rows has at most N/S, so that the streams that fill up have less than N/2 entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .stream_rows import EqualStreams, Segments, StreamRows, rounded_size


class RowShape(NamedTuple):
    """What is the same for all batches of a graph.

    largest      at least how many rows the largest stream has, rounded as kernels do
    has_single   whether a stream has a single row, which has no variance where an example is a single value
    """

    rows: int
    streams: int
    largest: int
    has_single: bool

    @classmethod
    def of(cls, rows: StreamRows, *, pad: bool) -> RowShape:
        examples, streams = len(rows), len(rows.sizes)
        shape = cls(examples, streams, rounded_size(max(rows.sizes)), 1 in rows.sizes)
        if not pad:
            return shape
        padded = padded_size(examples)
        # With fewer streams than rows, so that values of rows and of streams can be told apart.
        most = padded if streams == examples else padded - 1
        return shape._replace(rows=padded, streams=min(padded_size(streams), most))


def padded_size(number: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power > 2 and number <= power * 3 // 4 else power


class StaticRows(StreamRows):
    """The rows of a graph. `begin` makes what a pass needs out of the memory, as a part of the graph.

    `states` says for how many adaptations there is a place for the rows of the streams in their tables.
    """

    is_static = True

    def __init__(self, shape: RowShape, device: torch.device, states: int) -> None:
        super().__init__([])
        self.group = None
        self.shape, self.device = shape, device
        # What the host asks about sizes while a pass is recorded has the same answer for all batches of the shape.
        self.positions, self.names = [0] * shape.rows, list(range(shape.streams))
        self.sizes = [shape.largest] * shape.streams
        if shape.has_single:
            self.sizes[0] = 1
        entries = shape.rows + shape.rows // 2
        self._widths = [shape.rows, shape.streams, entries, *[shape.streams] * states]
        with torch.inference_mode(False):
            self._memory = torch.zeros(sum(self._widths), dtype=torch.long, device=device)
        self._index, self._sizes, self._entries, *self.places = self._memory.split(self._widths)
        self._entry_streams: Tensor | None = None

    def fill(self, rows: StreamRows, places: Sequence[Sequence[int]]) -> None:
        """Copy a batch into the memory, and where its streams are in the table of each adaptation."""
        shape, count = self.shape, len(rows)
        positions, sizes = np.array(rows.positions), np.array(rows.sizes)
        order = np.argsort(positions, kind="stable")
        repeats, smallest = shape.streams - len(sizes), int(sizes.argmin())
        size = int(sizes[smallest])
        begin = int(sizes[:smallest].sum())
        joined = np.zeros(sum(self._widths), np.int64)
        index, all_sizes, entries, *own_places = np.split(joined, np.cumsum(self._widths[:-1]))
        index[:count] = positions  # the first row is one of stream 0, and so are those that repeat it
        all_sizes[: len(sizes)], all_sizes[len(sizes) :] = sizes, size
        entries[:count] = order
        entries[count : count + repeats * size] = np.tile(order[begin : begin + size], repeats)
        for own, place in zip(own_places, places, strict=True):
            own[: len(place)], own[len(place) :] = place, place[smallest]
        values = torch.from_numpy(joined)
        # Not from memory that is used again: the copy may not have happened yet when the next batch comes.
        self._memory.copy_(values.pin_memory() if self._memory.is_cuda else values, non_blocking=True)

    def begin(self) -> None:
        """Must be called in every pass, before the model is."""
        self.end()
        shape, device = self.shape, self.device
        starts = torch.cat([self._sizes.new_zeros(1), self._sizes.cumsum(0)])
        entries, begins, index = self._entries.int(), starts.int(), self._index.int()
        numbers = torch.arange(shape.streams, dtype=torch.int32, device=device)
        self._tensors[device] = self._index, self._sizes[:, None]
        self._segments[device] = Segments(entries, begins, index, numbers, shape.largest)
        # The streams of the entries; for those that are not used, one more than there are.
        numbers_of_entries = torch.arange(len(self._entries), device=device)
        self._entry_streams = torch.searchsorted(starts[1:], numbers_of_entries, right=True)

    def end(self) -> None:
        """Forget what a pass has made: it is in memory of the graph."""
        for made in (self._tensors, self._equal, self._segments, self._value_counts, self._zeros):
            made.clear()
        self._entry_streams = None

    def sum(self, values: Tensor) -> Tensor:
        assert self._entry_streams is not None
        streams, of_entries = self.shape.streams, values.index_select(0, self._entries)
        zeros = values.new_zeros(streams + 1, *values.shape[1:])
        return zeros.index_add(0, self._entry_streams, of_entries).narrow(0, 0, streams)

    def _find_equal_streams(self, device: torch.device) -> list[EqualStreams]:
        """All streams, filled up to the largest size."""
        size = self.shape.largest
        number = torch.arange(size, device=device)
        is_row = number < self._sizes[:, None]
        starts = self._segments[device].starts[:-1, None]
        rows = self._entries[torch.where(is_row, starts + number, starts)]
        streams = torch.arange(self.shape.streams, device=device)
        return [EqualStreams(streams, rows.flatten(), is_row.flatten(), size)]
