"""The state of a stream: one vector, which is an input and an output of the file.

It holds the number of batches so far and what each layer remembers. Zeros are a stream that has not begun. Whoever runs
the file gives the output of one batch to the next: see docs/onnx.md for onnxruntime and Triton.
"""

from __future__ import annotations

import onnx_ir as ir

from .nodes import Expression, NodeWriter

STATE, NEXT_STATE = "predbn_state", "predbn_next_state"
_DTYPE = ir.DataType.FLOAT


class State:
    """Collects the state of the layers of a model; `size` is how many values it has so far."""

    def __init__(self, model: ir.Model) -> None:
        self.size = 1
        self._model = model
        self.input = ir.val(STATE, dtype=_DTYPE)
        self.parts: list[Expression] = []

    def finish(self) -> None:
        """Add the input and the output. A state that is not finite is not kept."""
        writer = NodeWriter(self._model, "state", _DTYPE)
        old = Expression(writer, self.input)
        batches = writer.op("Slice", old, writer.integers(0), writer.integers(1))
        new = writer.op("Concat", batches + 1, *self.parts, axis=0)
        kept = ((new - new).sum([0]) < 0.5).where(new, old).value
        kept.name, kept.dtype = NEXT_STATE, _DTYPE
        self.input.shape = kept.shape = ir.Shape([self.size])
        graph = self._model.graph
        graph.extend(writer.nodes)
        graph.inputs.append(self.input)
        graph.outputs.append(kept)


class LayerState:
    """What one layer remembers, in the precision of its statistics: it is written in the order in which it is read."""

    def __init__(self, state: State, writer: NodeWriter, shape: tuple[int, ...]) -> None:
        self._state, self._writer, self._shape = state, writer, shape
        self.batches = self._slice(0, 1)

    def read(self) -> Expression:
        """The next value of each channel."""
        return self._next(self._shape[1]).reshape(*self._shape)

    def read_number(self) -> Expression:
        """The next value."""
        return self._next(1)

    def write(self, *values: Expression) -> None:
        for value in values:
            flat = value.reshape(-1)
            self._state.parts.append(flat if value.writer.dtype == _DTYPE else flat.cast(_DTYPE))

    def _next(self, count: int) -> Expression:
        start, self._state.size = self._state.size, self._state.size + count
        return self._slice(start, self._state.size)

    def _slice(self, start: int, end: int) -> Expression:
        writer = self._writer
        vector = Expression(writer, self._state.input)
        part = writer.op("Slice", vector, writer.integers(start), writer.integers(end))
        return part if writer.dtype == _DTYPE else part.cast(writer.dtype)
