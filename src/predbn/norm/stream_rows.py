"""Which rows of a batch belong to which stream, and sums over the rows of each stream.

A batch of N examples that belong to S streams is never split. What is known of each example, [N, …], is added up per
stream, [S, …], in one operation, and what was found out for each stream is repeated for its examples in another one.
The sums are not a product with a matrix of ones and zeros: a NaN of one stream times zero would reach all others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

_LAYERS = 64
"""For so many layers at a time there is memory for what the kernels find out about examples."""
_SIZES = 4, 8, 32
"""Numbers of examples of a stream that kernels are compiled for, besides larger powers of two."""


class EqualStreams(NamedTuple):
    """Streams with about as many examples each, filled up to the same number n.

    streams   which ones, [s]
    rows      their examples, [s · n]; a stream is filled up with its first example
    is_row    whether it is one of the stream's examples, or fills it up, [s · n]
    size      n
    """

    streams: Tensor
    rows: Tensor
    is_row: Tensor
    size: int


class Segments(NamedTuple):
    """Which of N examples belong to which of S streams, on a device, as whole numbers of 32 bits.

    order     the examples, those of the first stream first, [N]
    starts    where each stream begins in `order`, and where the last one ends, [S + 1]
    streams   the stream of each example, [N]
    numbers   0, 1, …, S − 1
    largest   how many examples the largest stream has
    """

    order: Tensor
    starts: Tensor
    streams: Tensor
    numbers: Tensor
    largest: int


class StreamRows:
    """Which of S streams each of N examples belongs to.

    `names` are the streams in the order in which they first appear, `sizes` how many examples each has, and `positions`
    says which stream each example belongs to. `group` is n if every stream is n consecutive examples, otherwise None.
    `is_static` says that a graph reads them from memory that is filled before each replay (`static_rows.py`): the host
    must not look at any values then.
    """

    is_static = False

    def __init__(self, ids: Sequence[Hashable]) -> None:
        order: dict[Hashable, int] = {}
        self.positions = [order.setdefault(name, len(order)) for name in ids]
        self.names = list(order)
        self.sizes = [0] * len(order)
        for position in self.positions:
            self.sizes[position] += 1
        size = self.sizes[0] if self.sizes else 1
        is_regular = self.positions == [i // size for i in range(size * len(order))]
        self.group: int | None = size if is_regular else None
        self._tensors: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._equal: dict[torch.device, list[EqualStreams]] = {}
        self._segments: dict[torch.device, Segments] = {}
        self._value_counts: dict[tuple[torch.device, int], Tensor] = {}
        self._zeros: dict[torch.device, list[Tensor]] = {}

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.positions)

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The stream of each example, [N], and the sizes, [S, 1], on a device."""
        found = self._tensors.get(device)
        if found is None:
            both = tensor_on(device, [*self.positions, *self.sizes])
            found = self._tensors[device] = both[: len(self)], both[len(self) :, None]
        return found

    def size_tensor(self, like: Tensor) -> Tensor:
        """How many examples each stream has, [S, 1], on the device of a tensor."""
        return self._on(like.device)[1]

    def index(self, like: Tensor, rows_per_example: int = 1) -> Tensor:
        """The stream of each row, [N · rows], on the device of a tensor."""
        index = self._on(like.device)[0]
        return index if rows_per_example == 1 else index.repeat_interleave(rows_per_example)

    def segments(self, device: torch.device) -> Segments:
        """The same for the kernels of a GPU, in one copy to the device."""
        found = self._segments.get(device)
        if found is None:
            order = sorted(range(len(self)), key=self.positions.__getitem__)
            parts = order, [0, *accumulate(self.sizes)], self.positions, range(len(self.sizes))
            joined = tensor_on(device, [value for part in parts for value in part], torch.int32)
            order_on, starts, streams, numbers = joined.split([len(part) for part in parts])
            found = self._segments[device] = Segments(order_on, starts, streams, numbers, max(self.sizes))
        return found

    def value_counts(self, like: Tensor, positions: int) -> Tensor:
        """How many values each stream has per channel, [S, 1], with so many positions in an example."""
        key = like.device, positions
        if key not in self._value_counts:
            self._value_counts[key] = self.size_tensor(like) * positions
        return self._value_counts[key]

    def zeros(self, device: torch.device) -> Tensor:
        """A zero for each example, [N], as a number of 32 bits. One operation makes those of many layers."""
        ready = self._zeros.setdefault(device, [])
        if not ready:
            with torch.inference_mode(False):
                ready.extend(torch.zeros(_LAYERS, len(self), dtype=torch.int32, device=device).unbind())
        return ready.pop()

    def sum(self, values: Tensor) -> Tensor:
        """[S, …] from [N, …]."""
        return values.new_zeros(len(self.sizes), *values.shape[1:]).index_add(0, self.index(values), values)

    def repeat(self, values: Tensor) -> Tensor:
        """[N, …] from [S, …]."""
        return values.index_select(0, self.index(values))

    def part(self, streams: Sequence[int]) -> tuple[Tensor, StreamRows]:
        """The examples of some of the streams, and which of these they belong to."""
        order = {stream: i for i, stream in enumerate(streams)}
        rows = [row for row, position in enumerate(self.positions) if position in order]
        rows.sort(key=lambda row: order[self.positions[row]])
        return tensor_on(torch.device("cpu"), rows), StreamRows([order[self.positions[row]] for row in rows])

    def equal_streams(self, like: Tensor) -> list[EqualStreams]:
        """All streams, put together by size: those of 1, of 2, of up to 4, 8, 16, … examples."""
        found = self._equal.get(like.device)
        if found is None:
            found = self._equal[like.device] = self._find_equal_streams(like.device)
        return found

    def _find_equal_streams(self, device: torch.device) -> list[EqualStreams]:
        rows_of: list[list[int]] = [[] for _ in self.sizes]
        for row, position in enumerate(self.positions):
            rows_of[position].append(row)
        by_size: dict[int, list[int]] = {}
        for stream, size in enumerate(self.sizes):
            by_size.setdefault((size - 1).bit_length(), []).append(stream)
        found = []
        for streams in by_size.values():
            most = max(self.sizes[stream] for stream in streams)
            rows = [row for s in streams for row in rows_of[s] + rows_of[s][:1] * (most - self.sizes[s])]
            is_row = [i < self.sizes[s] for s in streams for i in range(most)]
            on_device = [tensor_on(device, values) for values in (streams, rows, is_row)]
            found.append(EqualStreams(on_device[0], on_device[1], on_device[2], most))
        return found


def rounded_size(examples: int) -> int:
    """So many examples or more, for which a kernel is compiled: few versions, because each takes seconds."""
    return next((most for most in _SIZES if examples <= most), 1 << (examples - 1).bit_length())


@lru_cache(maxsize=256)
def whole_batch(examples: int) -> StreamRows:
    """So many examples of a single stream."""
    return StreamRows([0] * examples)


def tensor_on(device: torch.device, values: Sequence[Any], dtype: torch.dtype | None = None) -> Tensor:
    """Values on a device, for which the host does not wait.

    It is not a tensor of inference mode: those cannot be used with gradients later.
    """
    with torch.inference_mode(False):
        tensor = torch.tensor(values, dtype=dtype)
        return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
