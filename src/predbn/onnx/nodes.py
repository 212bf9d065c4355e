"""Equations as ONNX nodes: an `Expression` is a value of a graph, and its arithmetic appends nodes.

The equations of the other files can then be read as equations. All tensors keep the number of dimensions of the layer's
input: statistics of a batch are [1, C, 1, 1], those of its examples [N, C, 1, 1], and sums over channels [1, 1, 1, 1],
so that everything broadcasts without reshaping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array: TypeAlias = npt.NDArray[Any]
Operand: TypeAlias = "Expression | float"

_AXES_ARE_INPUT = 18
"""From this opset on, the axes of ReduceMean are an input; before, they are an attribute."""


class NodeWriter:
    """Collects new nodes, in the opset of a model, in `nodes`; constants become initialisers of the main graph."""

    def __init__(self, model: ir.Model, prefix: str, dtype: ir.DataType) -> None:
        self.nodes: list[ir.Node] = []
        self.dtype = dtype
        self._graph = model.graph
        self._opset = model.opset_imports[""]
        self._prefix = f"{prefix}/predbn"

    def op(self, op_type: str, *inputs: Expression, outputs: int = 1, **attributes: Any) -> Expression:
        """Append a node; the expression is its first output."""
        name = f"{self._prefix}/{op_type}_{len(self.nodes)}"
        node = ir.node(op_type, [expression.value for expression in inputs], attributes, num_outputs=outputs, name=name)
        for i, output in enumerate(node.outputs):
            output.name = f"{name}:{i}" if i else name
        self.nodes.append(node)
        return Expression(self, node.outputs[0])

    def number(self, value: float) -> Expression:
        """A scalar in the precision of the statistics; all layers share initialisers of equal scalars."""
        return self._initializer(f"predbn/{value!r}/{self.dtype.name}", np.array(value, self.dtype.numpy()))

    def constant(self, name: str, values: Array) -> Expression:
        """An initialiser of this layer in the precision of the statistics."""
        return self._initializer(f"{self._prefix}/{name}", np.asarray(values, self.dtype.numpy()))

    def integers(self, *values: int) -> Expression:
        return self._initializer(f"predbn/{list(values)}", np.array(values, np.int64))

    def reduce(self, op_type: str, x: Expression, axes: Sequence[int]) -> Expression:
        if op_type == "ReduceMean" and self._opset < _AXES_ARE_INPUT:
            return self.op(op_type, x, axes=list(axes), keepdims=1)
        return self.op(op_type, x, self.integers(*axes), keepdims=1)

    def _initializer(self, name: str, values: Array) -> Expression:
        known = self._graph.initializers.get(name)
        if known is None:
            known = ir.val(name, const_value=ir.tensor(values, name=name))
            self._graph.register_initializer(known)
        return Expression(self, known)


def _operator(op_type: str, *, reflected: bool = False) -> Callable[..., Expression]:
    """A method that appends a node of this type; its other operands may be numbers."""

    def method(self: Expression, *others: Operand) -> Expression:
        operands = [self, *(x if isinstance(x, Expression) else self.writer.number(float(x)) for x in others)]
        return self.writer.op(op_type, *(reversed(operands) if reflected else operands))

    return method


class Expression:
    """A value of the graph with arithmetic operators, also with numbers on either side."""

    def __init__(self, writer: NodeWriter, value: ir.Value) -> None:
        self.writer, self.value = writer, value

    __add__ = __radd__ = _operator("Add")
    __mul__ = __rmul__ = _operator("Mul")
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", reflected=True)
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", reflected=True)
    __lt__ = _operator("Less")
    at_least, at_most = _operator("Max"), _operator("Min")
    sqrt, log, exp, floor = (_operator(name) for name in ("Sqrt", "Log", "Exp", "Floor"))
    where = _operator("Where")
    """The first operand where this is true, otherwise the second."""

    def mean(self, axes: Sequence[int]) -> Expression:
        return self.writer.reduce("ReduceMean", self, axes)

    def sum(self, axes: Sequence[int]) -> Expression:
        return self.writer.reduce("ReduceSum", self, axes)

    def cast(self, dtype: ir.DataType) -> Expression:
        return self.writer.op("Cast", self, to=int(dtype))

    def reshape(self, *shape: int) -> Expression:
        """0 keeps a dimension, −1 is inferred."""
        return self.writer.op("Reshape", self, self.writer.integers(*shape))
