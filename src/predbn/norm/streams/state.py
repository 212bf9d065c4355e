"""What a stream remembers, as a dictionary of tensors and packed into one vector.

A strategy keeps about ten small tensors per layer and stream. If the tensors of every stream were stacked one by one, a
batch with rows of 64 streams would take ten thousand operations. So all that a stream remembers, of all layers, is
packed into one vector, and a batch of S streams is one matrix:

    stack      the vectors of the S streams, [S, D]
    unpack     views of the columns, [S, C] in place of [C], so that a strategy serves all streams at once
    pack       join them again, changed or not, and give each stream its row

A single stream is the same without the first dimension. Streams differ in what they remember: one that begins has
nothing yet. This is their `Layout`, and streams of the same layout are handled together. A Python number in the state,
such as how many batches a layer has seen, is part of the layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypedDict
from weakref import WeakValueDictionary

import torch
from torch import Tensor

LayerState: TypeAlias = dict[str, "Tensor | int"]
"""What a strategy remembers for one layer of a stream."""
States: TypeAlias = dict[str, LayerState]
"""The same for all layers, by name."""
Kind: TypeAlias = tuple[torch.device, torch.dtype]


class _Entry(NamedTuple):
    """A tensor of a layer: in the vector of which kind it is, from where on. Layers may share one."""

    layer: str
    key: str
    kind: Kind
    start: int
    shape: torch.Size


class PlainState(TypedDict):
    """A packed state as tensors and plain data, with which a store can do what it likes.

    A row of `tensors` is the layer, the key, which of the vectors, from where on, and the shape; one of `numbers` is
    the layer, the key and the number.
    """

    tensors: list[list[Any]]
    numbers: list[list[Any]]
    vectors: dict[str, Tensor]


class Layout:
    """What streams remember in kind: tensors in vectors, one for each device and dtype, and numbers."""

    def __init__(self, tensors: tuple[_Entry, ...], numbers: tuple[tuple[str, str, int], ...]) -> None:
        self._tensors, self._numbers = tensors, numbers

    @cached_property
    def _plain(self) -> PlainState:
        kinds = list(dict.fromkeys(entry.kind for entry in self._tensors))
        rows = [[e.layer, e.key, kinds.index(e.kind), e.start, list(e.shape)] for e in self._tensors]
        return {"tensors": rows, "numbers": [list(number) for number in self._numbers], "vectors": {}}

    def plain(self, vectors: Mapping[Kind, Tensor]) -> PlainState:
        """A state as plain data."""
        return {**self._plain, "vectors": {str(number): vector for number, vector in enumerate(vectors.values())}}

    def unpack(self, vectors: Mapping[Kind, Tensor]) -> States:
        """Views of vectors [D], or with a first dimension of matrices [S, D]."""
        states: States = {}
        views: dict[tuple[Kind, int, torch.Size], Tensor] = {}
        for layer, key, kind, start, shape in self._tensors:
            view = views.get((kind, start, shape))  # a tensor without elements begins where the next one does
            if view is None:
                vector = vectors[kind]
                view = vector.narrow(-1, start, shape.numel())
                if len(shape) != 1:
                    view = view.view((*vector.shape[:-1], *shape))
                views[kind, start, shape] = view
            states.setdefault(layer, {})[key] = view
        for layer, key, number in self._numbers:
            states.setdefault(layer, {})[key] = number
        return states


_layouts: WeakValueDictionary[tuple[tuple[_Entry, ...], tuple[tuple[str, str, int], ...]], Layout] = (
    WeakValueDictionary()
)
"""Equal layouts are the same object, so that comparing them takes no time."""


def _layout(tensors: tuple[_Entry, ...], numbers: tuple[tuple[str, str, int], ...]) -> Layout:
    layout = _layouts.get((tensors, numbers))
    if layout is None:
        layout = _layouts[tensors, numbers] = Layout(tensors, numbers)
    return layout


class Packed(NamedTuple):
    """States packed into vectors, [D], or those of several streams into matrices, [S, D]."""

    layout: Layout
    vectors: dict[Kind, Tensor]

    def unpack(self) -> States:
        return self.layout.unpack(self.vectors)

    def is_finite(self) -> Tensor | None:
        """Whether all numbers of each stream are finite, [] or [S]; None if there are none to look at."""
        looks = [vector.isfinite().all(-1) for vector in self.vectors.values() if vector.is_floating_point()]
        if not looks:
            return None
        result = looks[0]
        for look in looks[1:]:
            result = result & look.to(result.device)
        return result

    def where(self, condition: Tensor, other: Packed) -> Packed:
        """These states where the condition holds, [] or [S], and the others elsewhere; of the same layout."""
        condition = condition[..., None]
        with torch.inference_mode(False):  # tensors made in inference mode cannot be used with gradients later
            vectors = {
                kind: torch.where(condition.to(vector.device), vector, other.vectors[kind])
                for kind, vector in self.vectors.items()
            }
        return Packed(self.layout, vectors)

    @classmethod
    def of(cls, plain: PlainState, device: torch.device) -> Packed:
        """A state from plain data, on a device."""
        moved = [vector.to(device) for vector in plain["vectors"].values()]
        kinds = [(vector.device, vector.dtype) for vector in moved]
        tensors = tuple(
            _Entry(layer, key, kinds[vector], start, torch.Size(shape))
            for layer, key, vector, start, shape in plain["tensors"]
        )
        layout = _layout(tensors, tuple((layer, key, number) for layer, key, number in plain["numbers"]))
        return cls(layout, dict(zip(kinds, moved, strict=True)))

    def clone(self) -> Packed:
        return Packed(self.layout, {kind: vector.clone() for kind, vector in self.vectors.items()})

    @torch.no_grad()
    def copy_(self, other: Packed) -> None:
        """Overwrite the memory of these states with others of the same layout."""
        for kind, vector in self.vectors.items():
            vector.copy_(other.vectors[kind])

    def rows(self, count: int) -> list[Packed]:
        """The states of each stream, with memory of their own."""
        with torch.inference_mode(False):
            rows = {kind: [row.clone() for row in matrix] for kind, matrix in self.vectors.items()}
        return [Packed(self.layout, {kind: parts[i] for kind, parts in rows.items()}) for i in range(count)]


def pack(states: States, streams: int | None = None) -> Packed:
    """Join all tensors, [streams, …] each; without `streams` those of a single one. A shared tensor is there once."""
    tensors: list[_Entry] = []
    numbers: list[tuple[str, str, int]] = []
    pieces: dict[Kind, list[Tensor]] = {}
    widths: dict[Kind, int] = {}
    starts: dict[tuple[str, int], int] = {}
    leading = () if streams is None else (streams,)
    for layer, state in sorted(states.items()):  # so that equal layouts have the same order
        for key, value in sorted(state.items()):
            if not isinstance(value, Tensor):
                numbers.append((layer, key, value))
                continue
            kind, shape = (value.device, value.dtype), value.shape[len(leading) :]
            width = widths.get(kind, 0)
            start = starts.setdefault((key, id(value)), width)
            if start == width:
                pieces.setdefault(kind, []).append(value if len(shape) == 1 else value.reshape(*leading, -1))
                widths[kind] = width + shape.numel()
            tensors.append(_Entry(layer, key, kind, start, shape))
    layout = _layout(tuple(tensors), tuple(numbers))
    with torch.inference_mode(False), torch.no_grad():  # tensors of inference mode cannot be used with gradients later
        return Packed(layout, {kind: torch.cat(parts, -1) for kind, parts in pieces.items()})


def stack(packed: Sequence[Packed]) -> Packed:
    """The states of several streams of the same layout as one matrix."""
    first = packed[0]
    with torch.inference_mode(False):
        return Packed(first.layout, {k: torch.stack([p.vectors[k] for p in packed]) for k in first.vectors})


def copy_states(states: States) -> States:
    """The states with tensors of their own."""
    return {
        layer: {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}
        for layer, state in states.items()
    }
