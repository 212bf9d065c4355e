"""What many streams remember, in one matrix with a row per stream.

A strategy keeps about ten small tensors per layer and stream. If every stream had tensors of its own, a batch with rows
of 64 streams would stack and unstack ten thousand of them. Here all that a stream remembers, of all layers, is one row
of a matrix, and the table knows which columns belong to which tensor of which layer. A pass then needs three
operations, whatever the number of streams and layers:

    gather    copy the rows of the S streams of the batch, [S, D]
    strategy  works on views of the columns, [S, C] in place of [C], so that it serves all streams at once
    scatter   join the columns, changed or not, and copy them back into the rows

Kernels of a GPU change the copies in place, so that there is nothing to join, and no views are made.

Streams differ in what they remember: one that begins has nothing yet. This is a stream's *stage*: which tensors there
are, and how many passes were counted. Streams of the same stage are handled together; a batch mostly has one stage, or
two while streams begin. Columns that a stage does not have are undefined.

There is one matrix per device and dtype. Rows are used again when streams leave, and the matrix is doubled when it is
full. A stream that is used by itself leaves the table and has tensors of its own (see `passes.Stream`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .stream_rows import tensor_on

LayerState: TypeAlias = dict[str, "Tensor | int"]
"""What a strategy remembers for one layer of a stream."""
States: TypeAlias = dict[str, LayerState]
"""The same for all layers, by name."""
_Matrix: TypeAlias = tuple[torch.device, torch.dtype]

_STAGE_KEYS = "passes", "done"
"""Numbers that are the same for all streams of a stage."""
_FEWEST_ROWS = 16


class _Column(NamedTuple):
    """Where a tensor of this shape is: in which matrix, from which column on. A Python number has no shape."""

    matrix: _Matrix
    start: int
    shape: torch.Size | None

    @property
    def width(self) -> int:
        return 1 if self.shape is None else math.prod(self.shape)


_Stage: TypeAlias = tuple[tuple[str, str, "_Column | int"], ...]
"""The layer, the key and the column of each tensor; numbers of `_STAGE_KEYS` are here and have no column."""


class StageColumns:
    """The columns of a stage by layer and key, and where they are for kernels, which is found out once."""

    def __init__(self, number: int, stage: _Stage) -> None:
        self.number = number
        self.by_layer: dict[str, dict[str, _Column | int]] = {}
        for layer, key, column in stage:
            self.by_layer.setdefault(layer, {})[key] = column
        self.matrices = {column.matrix for *_, column in stage if isinstance(column, _Column)}
        self._offsets: dict[Any, dict[str, Tensor]] = {}
        self._filled: dict[Any, tuple[Tensor, Tensor] | None] = {}

    def offsets(self, matrix: _Matrix, keys: Sequence[str]) -> dict[str, Tensor]:
        """For each layer whose tensors are all in this matrix, where those with these keys begin; −1 if missing."""
        found = self._offsets.get((matrix, keys))
        if found is None:
            layers = {
                layer: [column.start if isinstance(column := columns.get(key), _Column) else -1 for key in keys]
                for layer, columns in self.by_layer.items()
                if all(isinstance(column, _Column) and column.matrix == matrix for column in columns.values())
            }
            starts = tensor_on(matrix[0], list(layers.values()), torch.int32)
            found = self._offsets[matrix, keys] = dict(zip(layers, starts.unbind(), strict=True))
        return found

    def filled(self, matrix: _Matrix, has: str, widths: Mapping[str, int]) -> tuple[Tensor, Tensor] | None:
        """Where tensors of these widths go in all layers with the key `has`: columns, and positions in the tensors.

        None if one of the layers has no such columns.
        """
        key = matrix, has, tuple(widths.items())
        if key not in self._filled:
            columns: list[int] = []
            positions: list[int] = []
            for own in (own for own in self.by_layer.values() if has in own):
                start = 0
                for name, width in widths.items():
                    column = own.get(name)
                    if not isinstance(column, _Column) or column.matrix != matrix or column.width != width:
                        self._filled[key] = None
                        return None
                    columns += range(column.start, column.start + width)
                    positions += range(start, start + width)
                    start += width
            self._filled[key] = tensor_on(matrix[0], columns, torch.long), tensor_on(matrix[0], positions, torch.long)
        return self._filled[key]


class GatheredStates(Mapping[str, LayerState]):
    """The states of S streams of the same stage: a copy of their rows, and views of its columns for each layer.

    Views are made when a layer is asked for. A tensor of shape (…) is [S, …], a number [S, 1]. Kernels work in the copy
    itself, without views (`columns`, `take`, `fill`).
    """

    def __init__(self, stage: StageColumns, copies: dict[_Matrix, Tensor], count: int) -> None:
        self.stage, self.copies, self.count = stage, copies, count
        self._views: States = {}
        self._layers: States = {}
        self._taken: dict[str, str] = {}

    def __getitem__(self, layer: str) -> LayerState:
        state = self._layers.get(layer)
        if state is None:
            columns = self.stage.by_layer[layer]
            views = self._views[layer] = {key: self._view(column) for key, column in columns.items()}
            taken = self._taken.get(layer)
            state = self._layers[layer] = {key: value for key, value in views.items() if key != taken}
        return state

    def __iter__(self) -> Iterator[str]:
        return iter({**self.stage.by_layer, **self._layers})

    def __len__(self) -> int:
        return len(self.stage.by_layer.keys() | self._layers.keys())

    def _view(self, column: _Column | int) -> Tensor | int:
        if isinstance(column, int):
            return column
        value = self.copies[column.matrix].narrow(1, column.start, column.width)
        is_vector = column.shape is None or len(column.shape) == 1
        return value if is_vector else value.view(self.count, *column.shape)  # type: ignore[misc]

    def state(self, layer: str) -> LayerState:
        """The state of a layer, or an empty one that is kept."""
        return self[layer] if layer in self.stage.by_layer else self._layers.setdefault(layer, {})

    def columns(self, layer: str, device: torch.device, keys: Sequence[str]) -> LayerColumns | None:
        """Where kernels find the tensors of a layer, in single precision; None if they have changed in this pass."""
        if layer in self._layers or layer in self._taken:
            return None
        own = self.stage.by_layer.get(layer)
        if own is None:
            return LayerColumns(frozenset(), None, None)
        matrix = device, torch.float32
        offsets = self.stage.offsets(matrix, keys).get(layer)
        return None if offsets is None else LayerColumns(own.keys(), self.copies[matrix], offsets)

    def take(self, layer: str, key: str) -> None:
        """A kernel has used this tensor up: unless it is filled again, the layer does not have it any more."""
        self._taken[layer] = key

    def value(self, layer: str, key: str) -> Tensor | int | None:
        """One tensor of a layer, without making views of the others; None if there is none."""
        if layer in self._layers:
            return self._layers[layer].get(key)
        column = self.stage.by_layer.get(layer, {}).get(key)
        return None if column is None else self._view(column)

    def fill(self, has: str, values: Mapping[str, Tensor]) -> bool:
        """Write the same tensors, [S, …], into all layers with the key `has`, in place; False if that is impossible."""
        first = next(iter(values.values()))
        matrix = first.device, first.dtype
        if self._layers or matrix not in self.copies:
            return False
        found = self.stage.filled(matrix, has, {key: value.shape[1] for key, value in values.items()})
        if found is None:
            return False
        columns, positions = found
        self.copies[matrix].index_copy_(1, columns, torch.cat(list(values.values()), 1).index_select(1, positions))
        self._taken = {layer: key for layer, key in self._taken.items() if key not in values}
        return True

    @property
    def is_in_place(self) -> bool:
        """Whether all that has changed has changed in the copies."""
        return not self._taken and all(
            state.keys() == self._views.get(layer, {}).keys()
            and all(value is self._views[layer][key] for key, value in state.items())
            for layer, state in self._layers.items()
        )


class LayerColumns(NamedTuple):
    """What kernels have to know about the state of a layer: its keys, the matrix, [S, D], and where they begin.

    If the matrix is a copy, what kernels change there is not kept.
    """

    keys: Set[str]
    matrix: Tensor | None
    offsets: Tensor | None
    is_copy: bool = False


def joined_columns(state: LayerState, device: torch.device, keys: Sequence[str]) -> LayerColumns | None:
    """The state of a single stream in the same form; None if it is not in single precision or on another device."""
    found = {key: value for key in keys if isinstance(value := state.get(key), Tensor)}
    if not found:
        return LayerColumns(frozenset(), None, None, is_copy=True)
    if any(value.device != device or value.dtype != torch.float32 for value in found.values()):
        return None
    matrix = torch.cat([value.flatten() for value in found.values()])[None]
    widths = tuple((key, value.numel()) for key, value in found.items())
    return LayerColumns(found.keys(), matrix, joined_offsets(widths, device, tuple(keys)), is_copy=True)


@lru_cache(maxsize=1024)
def joined_offsets(widths: tuple[tuple[str, int], ...], device: torch.device, keys: tuple[str, ...]) -> Tensor:
    """Where the tensors with these keys begin if tensors of these widths are joined; −1 for one that is not there."""
    starts = dict(zip((key for key, _ in widths), accumulate((width for _, width in widths), initial=0), strict=False))
    return tensor_on(device, [starts.get(key, -1) for key in keys], torch.int32)


class StreamTable:
    """The states of many streams. Each has a row, and knows its number."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._matrices: dict[_Matrix, Tensor] = {}
        self._widths: dict[_Matrix, int] = {}
        self._columns: dict[tuple[str, str], _Column] = {}
        self._stages: list[_Stage] = [()]
        self._columns_of_stages = [StageColumns(0, ())]
        self._numbers_of_stages: dict[_Stage, int] = {(): 0}
        self._stage_of_row: dict[int, int] = {}
        self._free_rows: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        """Locks cannot be copied."""
        return {key: value for key, value in self.__dict__.items() if key != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.RLock())

    def add(self, states: States) -> int:
        """Put a stream into the table; the number of its row."""
        with self.lock:
            row = self._free_rows.pop() if self._free_rows else len(self._stage_of_row)
            self._stage_of_row[row] = 0
            if any(states.values()):
                self.scatter([row], {layer: _stacked(state) for layer, state in states.items()})
            return row

    def states(self, row: int) -> States:
        """A copy of what the stream in a row remembers."""
        with self.lock:
            states: States = {}
            for layer, key, column in self._stages[self._stage_of_row[row]]:
                value: Tensor | int
                if isinstance(column, int):
                    value = column
                else:
                    part = self._matrices[column.matrix][row].narrow(0, column.start, column.width)
                    value = int(part) if column.shape is None else part.reshape(column.shape).clone()
                states.setdefault(layer, {})[key] = value
            return states

    def remove(self, row: int) -> None:
        with self.lock:
            del self._stage_of_row[row]
            self._free_rows.append(row)
            if not self._stage_of_row:  # streams may come back on another device
                self._clear()

    def by_stage(self, rows: Sequence[int]) -> list[list[int]]:
        """The positions of streams of the same stage in `rows`."""
        with self.lock:
            found: dict[int, list[int]] = {}
            for position, row in enumerate(rows):
                found.setdefault(self._stage_of_row[row], []).append(position)
            return list(found.values())

    def common_stage(self, rows: Sequence[int]) -> StageColumns | None:
        """The stage of these streams; None if they are of several."""
        with self.lock:
            numbers = {self._stage_of_row[row] for row in rows}
            return self._columns_of_stages[numbers.pop()] if len(numbers) == 1 else None

    def matrices(self, stage: StageColumns) -> dict[_Matrix, Tensor]:
        """All rows of the matrices that a stage has columns in.

        Others may not have rows for its streams yet, because room is made when states are written.
        """
        with self.lock:
            return {matrix: self._matrices[matrix] for matrix in stage.matrices}

    def gather(self, rows: Sequence[int]) -> GatheredStates:
        """A copy of the states of S streams of the same stage."""
        with self.lock:
            stage = self._columns_of_stages[self._stage_of_row[rows[0]]]
            values = self.matrices(stage)
            copies = {matrix: old.index_select(0, _index(rows, old)) for matrix, old in values.items()}
            return GatheredStates(stage, copies, len(rows))

    def joined(self, states: Mapping[str, LayerState], count: int) -> tuple[StageColumns, dict[_Matrix, Tensor]]:
        """The stage of the states of so many streams after a pass, and the new rows of all its matrices."""
        with self.lock:
            if isinstance(states, GatheredStates) and states.is_in_place:
                return states.stage, states.copies
            return self._joined(states, count)

    @torch.no_grad()
    def scatter(self, rows: Sequence[int], states: Mapping[str, LayerState]) -> None:
        """Replace the states of S streams by others of one stage, in the form that `gather` returns.

        A stream whose new state is not finite keeps the old one. On a GPU that is waited for only if the stage changes.
        """
        with self.lock:
            stage, new = self.joined(states, len(rows))
            is_finite = finite_streams(new)
            is_same_stage = all(self._stage_of_row[row] == stage.number for row in rows)
            kept = list(range(len(rows)))
            if is_finite is not None and (is_finite.is_cpu or not is_same_stage):
                kept = is_finite.nonzero()[:, 0].tolist()
            for matrix, values in new.items():
                if len(kept) < len(rows):
                    values = values[kept]
                old = self._matrices[matrix]
                index = _index([rows[position] for position in kept], old)
                columns = old.narrow(1, 0, values.shape[1])
                if is_finite is not None and is_same_stage and not is_finite.is_cpu:
                    values = torch.where(is_finite.to(old.device)[:, None], values, columns.index_select(0, index))
                columns.index_copy_(0, index, values)
            for position in kept:
                self._stage_of_row[rows[position]] = stage.number

    def _stage_of(self, states: Mapping[str, LayerState]) -> _Stage:
        entries: list[tuple[str, str, _Column | int]] = []
        for layer, state in states.items():
            for key, value in state.items():
                column = self._column(layer, key, value) if isinstance(value, Tensor) else value
                entries.append((layer, key, column))
        return tuple(sorted(entries, key=lambda entry: entry[:2]))

    def _column(self, layer: str, key: str, value: Tensor) -> _Column:
        """The column for values [S, …]; a new one if it is the first of this shape, dtype and device."""
        matrix = value.device, value.dtype
        is_number = not value.is_floating_point() and value.shape[1:] == (1,)
        shape = None if is_number else value.shape[1:]
        column = self._columns.get((layer, key))
        if column is None or column.matrix != matrix or column.shape != shape:
            column = self._columns[layer, key] = _Column(matrix, self._widths.get(matrix, 0), shape)
            self._widths[matrix] = column.start + column.width
        return column

    def _make_room(self) -> None:
        """Enough rows and columns in all matrices; twice as many rows as before, so that it is seldom needed."""
        needed = len(self._stage_of_row) + len(self._free_rows)
        for matrix, width in self._widths.items():
            old = self._matrices.get(matrix)
            rows = _FEWEST_ROWS if old is None else old.shape[0]
            while rows < needed:
                rows *= 2
            if old is None or old.shape != (rows, width):
                device, dtype = matrix
                with torch.inference_mode(False):
                    new = torch.zeros(rows, width, device=device, dtype=dtype)
                    if old is not None:
                        new[: old.shape[0], : old.shape[1]] = old
                self._matrices[matrix] = new

    def _joined(self, states: Mapping[str, LayerState], count: int) -> tuple[StageColumns, dict[_Matrix, Tensor]]:
        stage = self._stage_of(states)
        number = self._numbers_of_stages.setdefault(stage, len(self._stages))
        if number == len(self._stages):
            self._stages.append(stage)
            self._columns_of_stages.append(StageColumns(number, stage))
        self._make_room()
        pieces: dict[_Matrix, list[Tensor]] = {}
        ends: dict[_Matrix, int] = {}
        columns = [(column, layer, key) for layer, key, column in stage if not isinstance(column, int)]
        for column, layer, key in sorted(columns, key=lambda entry: entry[0].start):
            value, matrix = states[layer][key], column.matrix
            assert isinstance(value, Tensor)
            joined, end = pieces.setdefault(matrix, []), ends.get(matrix, 0)
            if column.start > end:  # columns that this stage does not have
                joined.append(value.new_zeros(count, column.start - end))
            joined.append(value if value.dim() == 2 else value.reshape(count, -1))
            ends[matrix] = column.start + column.width
        return self._columns_of_stages[number], {matrix: torch.cat(joined, 1) for matrix, joined in pieces.items()}


def _stacked(state: LayerState) -> LayerState:
    """The state of a single stream in the form of `gather`."""
    return {
        key: value[None] if isinstance(value, Tensor) else value if key in _STAGE_KEYS else torch.tensor([[value]])
        for key, value in state.items()
    }


def _index(rows: Sequence[int], like: Tensor) -> Tensor:
    return tensor_on(like.device, rows, torch.long)


def finite_streams(new: dict[_Matrix, Tensor]) -> Tensor | None:
    """Which streams have a state that is finite, [S]; None if that is known of all, or if there are no such numbers."""
    found: Tensor | None = None
    for values in new.values():
        if not values.is_floating_point() or (values.is_cpu and math.isfinite(values.sum())):
            continue
        is_finite = values.isfinite().all(1)
        found = is_finite if found is None else found & is_finite.to(found.device)
    return found
