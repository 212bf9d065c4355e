"""How the examples of a batch are divided into segments, each with statistics of its own.

A segment is a group of consecutive examples (``adapt(…, group=8)``) or the examples of one stream
(``predbn.streams(model, ids)``), in any order. A batch of N examples in S segments is never split: what is known of
each example, [N, …], is summed per segment, [S, …], in one operation, and what was found for each segment is repeated
for its examples in another one. The sums are not a product with a matrix of ones and zeros: a NaN of one segment times
zero would reach all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Segments(ABC):
    """Which of S segments each of N examples belongs to.

    `count` is S, and `examples` is N, which may be a symbol of a graph. `sizes` is how many examples each segment has;
    a single number if all have the same. `group` is n if every segment is n consecutive examples, else None.
    """

    def __init__(self, count: int, examples: int, sizes: list[int], group: int | None) -> None:
        self.count, self.examples, self.sizes, self.group = count, examples, sizes, group
        self._tensors: dict[Any, Any] = {}

    @abstractmethod
    def index(self, like: Tensor) -> Tensor:
        """The segment of each example, [N], on the device of a tensor."""

    @abstractmethod
    def size_tensor(self, like: Tensor) -> Tensor:
        """The number of examples of each segment, [S, 1], or of all, [1, 1], on the device of a tensor."""

    @abstractmethod
    def _find_buckets(self, device: torch.device) -> list[Bucket]: ...

    @abstractmethod
    def _find_row_order(self, device: torch.device) -> RowOrder: ...

    def sum(self, values: Tensor) -> Tensor:
        """[S, …] from [N, …]."""
        return values.new_zeros(self.count, *values.shape[1:]).index_add(0, self.index(values), values)

    def repeat(self, values: Tensor) -> Tensor:
        """[N, …] from [S, …]."""
        return values.index_select(0, self.index(values))

    def buckets(self, device: torch.device) -> list[Bucket]:
        """All segments by size."""
        return self._cached("buckets", device, self._find_buckets)

    def row_order(self, device: torch.device) -> RowOrder:
        """The rows sorted by segment."""
        return self._cached("order", device, self._find_row_order)

    def _cached(self, name: str, device: torch.device, make: Callable[[torch.device], T]) -> T:
        if (name, device) not in self._tensors:
            self._tensors[name, device] = make(device)
        return self._tensors[name, device]  # type: ignore[no-any-return]


class StreamSegments(Segments):
    """The examples of several streams, in any order; `positions` are the streams of the examples."""

    def __init__(self, positions: Sequence[int], count: int) -> None:
        self.positions = positions
        sizes = [0] * count
        for position in positions:
            sizes[position] += 1
        size = sizes[0]
        is_regular = sizes == [size] * count and all(position == i // size for i, position in enumerate(positions))
        super().__init__(count, len(positions), sizes, size if is_regular else None)

    def index(self, like: Tensor) -> Tensor:
        return self._cached("both", like.device, self._on)[: self.examples]

    def size_tensor(self, like: Tensor) -> Tensor:
        return self._cached("both", like.device, self._on)[self.examples :, None]

    def _on(self, device: torch.device) -> Tensor:
        """Both in one copy to the device."""
        return tensor_on(device, [*self.positions, *self.sizes])

    def part(self, streams: Sequence[int]) -> tuple[list[int], StreamSegments]:
        """The examples of some of the streams, and how these are divided."""
        order = {stream: i for i, stream in enumerate(streams)}
        rows = [row for row, position in enumerate(self.positions) if position in order]
        return rows, StreamSegments([order[self.positions[row]] for row in rows], len(streams))

    def _find_buckets(self, device: torch.device) -> list[Bucket]:
        """Streams of 1, of 2, of up to 4, 8, 16, … examples."""
        rows_of: list[list[int]] = [[] for _ in self.sizes]
        for row, position in enumerate(self.positions):
            rows_of[position].append(row)
        by_size: dict[int, list[int]] = {}
        for stream, size in enumerate(self.sizes):
            by_size.setdefault((size - 1).bit_length(), []).append(stream)
        buckets = []
        for streams in by_size.values():
            size = max(self.sizes[stream] for stream in streams)
            rows = [row for s in streams for row in rows_of[s] + rows_of[s][:1] * (size - self.sizes[s])]
            is_row = [i < self.sizes[s] for s in streams for i in range(size)]
            on_device = [tensor_on(device, values) for values in (streams, rows, is_row)]
            buckets.append(Bucket(on_device[0], on_device[1], on_device[2], size))
        return buckets

    def _find_row_order(self, device: torch.device) -> RowOrder:
        order = sorted(range(self.examples), key=self.positions.__getitem__)
        starts = [0]
        for size in self.sizes:
            starts.append(starts[-1] + size)
        joined = tensor_on(device, [*order, *starts, *self.positions], torch.int32)
        rows, begins, segments = joined.split([self.examples, self.count + 1, self.examples])
        return RowOrder(rows, begins, segments, max(self.sizes))


class Groups(Segments):
    """Every `size` consecutive examples are a segment. The number of examples may be a symbol of a graph."""

    def __init__(self, examples: int, size: int) -> None:
        # torch.export does not know N / size; it gets N segments, of which only the first N / size have examples.
        is_exported = is_exporting()
        count = examples if is_exported else examples // size
        super().__init__(count, examples, [size], None if is_exported else size)
        self._size = size

    def index(self, like: Tensor) -> Tensor:
        return torch.arange(self.examples, device=like.device) // self._size

    def size_tensor(self, like: Tensor) -> Tensor:
        return torch.full((1, 1), self._size, device=like.device)

    def _find_buckets(self, device: torch.device) -> list[Bucket]:
        rows = torch.arange(self.examples, device=device)
        groups = torch.arange(self.count, device=device)
        return [Bucket(groups, rows, torch.ones_like(rows, dtype=torch.bool), self._size)]

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
