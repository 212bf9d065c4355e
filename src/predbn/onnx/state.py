"""The state of a stream: one vector, which is an input and an output of the file.

It holds the number of batches so far and what each layer remembers. Zeros are a stream that has not begun. Whoever runs
the file gives the output of one batch to the next: see docs/onnx.md for onnxruntime and Triton.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from predbn.common import AdaptationError

from .layers import Layer, check_is_in_main_graph
from .nodes import Expression, NodeWriter

STATE, NEXT_STATE = "predbn_state", "predbn_next_state"
_DTYPE = ir.DataType.FLOAT


class State:
    """Collects the state of the layers of a model; `size` is how many values it has so far."""

    def __init__(self, model: ir.Model, layers: Iterable[Layer]) -> None:
        for layer in layers:
            check_is_in_main_graph(layer, model, "it cannot keep a state")
            if layer.channels is None:
                raise AdaptationError(
                    f"the bias of node '{layer.name}' is computed, so that the size of its state is unknown: exclude "
                    "it with layers=…"
                )
        self.size = 1
        self._model = model
        self._input = ir.val(STATE, dtype=_DTYPE)
        self._parts: list[Expression] = []

    def batches(self, writer: NodeWriter) -> Expression:
        """How many batches the stream has had, [1]."""
        return self._slice(writer, 0, 1)

    def read(self, writer: NodeWriter, shape: tuple[int, ...]) -> Expression:
        """The next values, in a shape that broadcasts; each must be written in the same order."""
        start, self.size = self.size, self.size + shape[1]
        return self._slice(writer, start, self.size).reshape(*shape)

    def write(self, *values: Expression) -> None:
        for value in values:
            flat = value.reshape(-1)
            self._parts.append(flat if value.writer.dtype == _DTYPE else flat.cast(_DTYPE))

    def _slice(self, writer: NodeWriter, start: int, end: int) -> Expression:
        vector = Expression(writer, self._input)
        part = writer.op("Slice", vector, writer.integers(start), writer.integers(end))
        return part if writer.dtype == _DTYPE else part.cast(writer.dtype)

    def finish(self) -> None:
        """Add the input and the output. A state that is not finite is not kept."""
        writer = NodeWriter(self._model, "state", _DTYPE)
        parts = [self.batches(writer) + 1, *(Expression(writer, part.value) for part in self._parts)]
        state = writer.op("Concat", *parts, axis=0)
        is_finite = (state - state).sum([0]) < 0.5
        kept = writer.op("Where", is_finite, state, Expression(writer, self._input)).value
        kept.name, kept.dtype = NEXT_STATE, _DTYPE
        self._input.shape = kept.shape = ir.Shape([self.size])
        graph = self._model.graph
        graph.extend(writer.nodes)
        graph.inputs.append(self._input)
        graph.outputs.append(kept)
