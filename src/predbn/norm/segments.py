"""How the examples of a batch are divided into segments, each with statistics of its own.

A segment is a group of consecutive examples (``adapt(…, group=8)``) or the examples of one stream
(``predbn.streams(model, ids)``), in any order. A batch of N examples in S segments is never split: what is known of
each example, [N, …], is summed per segment, [S, …], in one operation, and what was found for each segment is repeated
for its examples in another one. The sums are not a product with a matrix of ones and zeros: a NaN of one segment times
zero would reach all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from .tracing import is_exporting

T = TypeVar("T")


class Bucket(NamedTuple):
    """Segments of about the same size, padded to the same number of examples n.

    segments  which ones, [s]
    rows      their examples, [s · n]; a segment is padded with its first example
    is_row    False for padding, [s · n]
    size      n
    """

    segments: Tensor
    rows: Tensor
    is_row: Tensor
    size: int


class RowOrder(NamedTuple):
    """The same for GPU kernels, as int32.

    order     the examples sorted by segment, [N]
    starts    where each segment begins in `order`, and where the last one ends, [S + 1]
    segments  the segment of each example, [N]
    largest   how many examples the largest segment has, or an upper bound
    """

    order: Tensor
    starts: Tensor
    segments: Tensor
    largest: int


class Segments:
    """Which of S segments each of N examples belongs to; `positions` are the segments of the examples.

    `sizes` is how many examples each segment has, `examples` how many there are in total, which may be a symbol of a
    graph: `len` would fix it. `group` is n if every segment is n consecutive examples, else None.
    """

    def __init__(self, positions: Sequence[int], count: int) -> None:
        self.positions, self.count, self.examples = positions, count, len(positions)
        self.sizes = [0] * count
        for position in positions:
            self.sizes[position] += 1
        size = self.sizes[0] if self.sizes else 1
        is_regular = all(position == i // size for i, position in enumerate(positions)) and size * count == len(self)
        self.group: int | None = size if is_regular else None
        self._tensors: dict[Any, Any] = {}

    def __len__(self) -> int:
        return self.examples

    def index(self, like: Tensor) -> Tensor:
        """The segment of each example, [N], on the device of a tensor."""
        return self._cached("index", like.device, lambda: self._on(like.device)[: len(self)])

    def size_tensor(self, like: Tensor) -> Tensor:
        """The number of examples of each segment, [S, 1]."""
        return self._cached("sizes", like.device, lambda: self._on(like.device)[len(self) :, None])

    def _on(self, device: torch.device) -> Tensor:
        return self._cached("both", device, lambda: tensor_on(device, [*self.positions, *self.sizes]))

    def _cached(self, name: str, device: torch.device, make: Callable[[], T]) -> T:
        if (name, device) not in self._tensors:
            self._tensors[name, device] = make()
        return self._tensors[name, device]  # type: ignore[no-any-return]

    def sum(self, values: Tensor) -> Tensor:
        """[S, …] from [N, …]."""
        return values.new_zeros(self.count, *values.shape[1:]).index_add(0, self.index(values), values)

    def repeat(self, values: Tensor) -> Tensor:
        """[N, …] from [S, …]."""
        return values.index_select(0, self.index(values))

    def part(self, segments: Sequence[int]) -> tuple[list[int], Segments]:
        """The examples of some of the segments, and how these are divided."""
        order = {segment: i for i, segment in enumerate(segments)}
        rows = [row for row, position in enumerate(self.positions) if position in order]
        return rows, Segments([order[self.positions[row]] for row in rows], len(segments))

    def buckets(self, like: Tensor) -> list[Bucket]:
        """All segments by size: those of 1, of 2, of up to 4, 8, 16, … examples."""
        return self._cached("buckets", like.device, lambda: self._find_buckets(like.device))

    def _find_buckets(self, device: torch.device) -> list[Bucket]:
        rows_of: list[list[int]] = [[] for _ in self.sizes]
        for row, position in enumerate(self.positions):
            rows_of[position].append(row)
        by_size: dict[int, list[int]] = {}
        for segment, size in enumerate(self.sizes):
            by_size.setdefault((size - 1).bit_length(), []).append(segment)
        buckets = []
        for segments in by_size.values():
            size = max(self.sizes[segment] for segment in segments)
            rows = [row for s in segments for row in rows_of[s] + rows_of[s][:1] * (size - self.sizes[s])]
            is_row = [i < self.sizes[s] for s in segments for i in range(size)]
            on_device = [tensor_on(device, values) for values in (segments, rows, is_row)]
            buckets.append(Bucket(on_device[0], on_device[1], on_device[2], size))
        return buckets

    def row_order(self, device: torch.device) -> RowOrder:
        """The rows sorted by segment, in one copy to the device."""
        return self._cached("order", device, lambda: self._find_row_order(device))

    def _find_row_order(self, device: torch.device) -> RowOrder:
        order = sorted(range(len(self)), key=self.positions.__getitem__)
        starts = [0]
        for size in self.sizes:
            starts.append(starts[-1] + size)
        joined = tensor_on(device, [*order, *starts, *self.positions], torch.int32)
        rows, begins, segments = joined.split([len(self), self.count + 1, len(self)])
        return RowOrder(rows, begins, segments, max(self.sizes))


class Groups(Segments):
    """Every `group` consecutive examples are a segment. The number of examples may be a symbol of a graph."""

    def __init__(self, examples: int, group: int) -> None:
        # torch.export does not know N / group; it gets N segments, of which only the first N / group have examples.
        is_exported = is_exporting()
        self.count = examples if is_exported else examples // group
        self.group = None if is_exported else group
        self.examples, self._size = examples, group
        self.sizes = [group]  # of every segment
        self._tensors = {}

    def index(self, like: Tensor) -> Tensor:
        return torch.arange(self.examples, device=like.device) // self._size

    def size_tensor(self, like: Tensor) -> Tensor:
        return torch.full((1, 1), self._size, device=like.device)

    def _find_buckets(self, device: torch.device) -> list[Bucket]:
        rows = torch.arange(self.examples, device=device)
        return [
            Bucket(torch.arange(self.count, device=device), rows, torch.ones_like(rows, dtype=torch.bool), self._size)
        ]

    def _find_row_order(self, device: torch.device) -> RowOrder:
        order = torch.arange(self.examples, device=device, dtype=torch.int32)
        starts = torch.arange(self.count + 1, device=device, dtype=torch.int32) * self._size
        return RowOrder(order, starts, order // self._size, self._size)


def tensor_on(device: torch.device, values: Sequence[Any], dtype: torch.dtype | None = None) -> Tensor:
    """Values on a device, without a synchronisation.

    It is not a tensor of inference mode: those cannot be used with gradients later.
    """
    with torch.inference_mode(False):
        tensor = torch.tensor(values, dtype=dtype)
        return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
