"""What one stream remembers of all layers, in one vector.

Kernels change it there in place, wherever a layer's part begins. A pass then copies one vector when it begins, and when
it has ended, one comparison tells whether all of it is finite, instead of several operations for each tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .kernels import IS_INTERPRETED
from .stream_rows import tensor_on
from .stream_table import LayerState, States

_Entry: TypeAlias = tuple[str, str, int, torch.Size]
"""Layer, key, first number of the vector, shape."""


class Place(NamedTuple):
    """Where a tensor of this shape is in the vector."""

    start: int
    shape: torch.Size

    @property
    def width(self) -> int:
        return math.prod(self.shape)


class Layout:
    """Which part of the vector is which tensor of which layer. A tensor that layers share is there once."""

    def __init__(self, entries: tuple[_Entry, ...], device: torch.device) -> None:
        self.places: dict[str, dict[str, Place]] = {}
        for layer, key, start, shape in entries:
            self.places.setdefault(layer, {})[key] = Place(start, shape)
        widths = {place.start: place.width for places in self.places.values() for place in places.values()}
        numbers = {start: number for number, start in enumerate(widths)}
        self._widths = list(widths.values())
        self._parts = {
            layer: [
                (key, numbers[place.start], None if len(place.shape) == 1 else place.shape)
                for key, place in places.items()
            ]
            for layer, places in self.places.items()
        }
        """The key, the number of the part of the vector, and the shape unless it is a vector, for each tensor."""
        self._device = device
        self._offsets: dict[Sequence[str], dict[str, Tensor]] = {}
        self._filled: dict[Any, tuple[Tensor, Tensor] | None] = {}

    def offsets(self, layer: str, keys: Sequence[str]) -> Tensor:
        """Where the tensors with these keys begin, for kernels: whole numbers of 32 bits; −1 if missing."""
        found = self._offsets.get(keys)
        if found is None:
            starts = [[own[key].start if key in own else -1 for key in keys] for own in self.places.values()]
            rows = tensor_on(self._device, starts, torch.int32).unbind()
            found = self._offsets[keys] = dict(zip(self.places, rows, strict=True))
        return found[layer]

    def states(self, vector: Tensor) -> States:
        """All tensors of all layers, as parts of the vector."""
        parts = vector.split(self._widths)
        return {
            layer: {key: parts[number] if shape is None else parts[number].view(shape) for key, number, shape in own}
            for layer, own in self._parts.items()
        }

    def filled(self, has: str, values: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """Where these tensors go in all layers with the key `has`: numbers of the vector, and of the joined tensors.

        None if one of the layers has no such tensors.
        """
        wanted = has, *((key, value.shape) for key, value in values.items())
        if wanted not in self._filled:
            numbers: dict[int, int] = {}
            for own in (own for own in self.places.values() if has in own):
                first = 0
                for key, value in values.items():
                    place = own.get(key)
                    if place is None or place.shape != value.shape:
                        self._filled[wanted] = None
                        return None
                    numbers.update((place.start + i, first + i) for i in range(place.width))
                    first += place.width
            rows = tensor_on(self._device, [list(numbers), list(numbers.values())], torch.long)
            self._filled[wanted] = rows[0], rows[1]
        return self._filled[wanted]


@lru_cache(maxsize=256)
def _layout(entries: tuple[_Entry, ...], device: torch.device) -> Layout:
    """Streams that remember the same kind of things have the same layout."""
    return Layout(entries, device)


class JoinedStates:
    """A vector, and what is where in it."""

    def __init__(self, layout: Layout, vector: Tensor) -> None:
        self.layout, self.vector = layout, vector
        self._states: States | None = None

    def view(self, layer: str, key: str) -> Tensor:
        """A tensor of a layer, which changes with the vector."""
        start, shape = self.layout.places[layer][key]
        return self.vector.narrow(0, start, math.prod(shape)).view(shape)

    def states(self) -> States:
        """All tensors of all layers, the same ones every time."""
        if self._states is None:
            self._states = self.layout.states(self.vector)
        return self._states

    def state(self, layer: str) -> LayerState:
        """All tensors of a layer."""
        return {key: self.view(layer, key) for key in self.layout.places[layer]}


def join_states(states: States) -> JoinedStates | None:
    """A copy of all states as a vector; None if they are not all tensors in single precision on one GPU."""
    entries: list[_Entry] = []
    parts: list[Tensor] = []
    starts: dict[tuple[str, int], int] = {}
    size = 0
    for layer, state in states.items():
        for key, value in state.items():
            if not isinstance(value, Tensor) or value.dtype != torch.float32 or not value.numel():
                return None
            if not (value.is_cuda or IS_INTERPRETED) or (parts and value.device != parts[0].device):
                return None
            start = starts.setdefault((key, id(value)), size)
            if start == size:
                parts.append(value.reshape(-1))
                size += value.numel()
            entries.append((layer, key, start, value.shape))
    if not parts:
        return None
    return JoinedStates(_layout(tuple(entries), parts[0].device), torch.cat(parts))
