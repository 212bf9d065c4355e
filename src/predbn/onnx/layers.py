"""Find the layers of a model: BatchNormalization nodes, and convolutions into which batch norm was folded.

Exporters fold batch norm into the convolution before it; torch.onnx.export does so by default, with both exporters. The
file does not say into which. Candidates are convolutions with a bias, except for heads, between which and the output of
the model there are no other weights: their outputs are logits, boxes or masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from predbn.common import AdaptationError

from .nodes import Array

_WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_HALF = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


@dataclass(frozen=True, eq=False)
class Layer:
    """A normalisation.

    `node` is the node to replace, or if it is a convolution, to insert nodes behind. A parameter is a value of the
    graph or an array; those of a convolution are measured first.
    """

    name: str
    node: ir.Node
    eps: float
    dtype: ir.DataType = ir.DataType.FLOAT
    rank: int | None = None
    scale: ir.Value | Array | None = None
    bias: ir.Value | Array | None = None
    mean: ir.Value | Array | None = None
    var: ir.Value | Array | None = None

    @property
    def is_convolution(self) -> bool:
        return self.node.op_type == "Conv"

    @property
    def x(self) -> ir.Value:
        """The input of a batch norm, or the output of a convolution."""
        value = self.node.outputs[0] if self.is_convolution else self.node.inputs[0]
        assert value is not None
        return value

    @property
    def channels(self) -> int | None:
        """The number of channels: the size of the bias, the third input of either operator. None if unknown."""
        bias = self.node.inputs[2]
        values = None if bias is None else constant(bias)
        return None if values is None else len(values)

    @property
    def statistics_dtype(self) -> ir.DataType:
        """Statistics of half precision are single precision."""
        return ir.DataType.FLOAT if self.dtype in _HALF else self.dtype


def constant(value: ir.Value) -> Array | None:
    """The values of a constant or of an initialiser that cannot be replaced at run time; otherwise None."""
    producer = value.producer()
    while producer is not None and _is_operator(producer, "Identity") and producer.inputs[0] is not None:
        value = producer.inputs[0]
        producer = value.producer()
    if value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def find_layers(model: ir.Model, *, convolutions: bool = False) -> list[Layer]:
    """All BatchNormalization nodes, including those in If, Loop and Scan.

    With `convolutions`, also convolutions into which batch norm may have been folded.
    """
    nodes = [node for node in model.graph.all_nodes() if _is_batch_norm(node)]
    if convolutions:
        nodes += find_convolutions(model)
    return _with_types(model, [_layer(node) for node in nodes])


def find_convolutions(model: ir.Model) -> list[ir.Node]:
    """Convolutions with a bias in the main graph, without heads and without those in front of a batch norm."""
    heads = set(_heads(model.graph))
    candidates = [node for node in model.graph if _is_operator(node, "Conv") and node not in heads and _has_bias(node)]
    return [node for node in candidates if not all(_is_batch_norm(use.node) for use in node.outputs[0].uses())]


def _has_bias(node: ir.Node) -> bool:
    """Whether its bias can come from folding: a constant other than zero (some exporters write zeros)."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    values = None if bias is None else constant(bias)
    return values is not None and bool(values.any())


def set_to_inference(model: ir.Model) -> None:
    """What `model.eval()` does before an export: batch norm uses its stored statistics, and dropout does nothing.

    An active dropout in a file whose batch norm is in inference mode is meant, and refused.
    """
    nodes = list(model.graph.all_nodes())
    in_training = [n for n in nodes if _is_batch_norm(n) and (n.attributes.get_int("training_mode") or n.outputs[1:])]
    for node in in_training:
        if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
            raise AdaptationError(
                f"the updated statistics of node '{node.name}' are used, because the model was exported for "
                "training: export it again after model.eval()"
            )
        node.attributes.pop("training_mode", None)
        node.resize_outputs(1)
    for node in nodes:
        flag = node.inputs[2] if _is_operator(node, "Dropout") and len(node.inputs) > 2 else None
        values = None if flag is None else constant(flag)
        if values is None or not values.any():
            continue
        if not in_training:
            raise AdaptationError(
                f"node '{node.name}' is an active dropout, so that predictions are random: export the model again "
                "after model.eval()"
            )
        node.resize_inputs(2)


def _layer(node: ir.Node) -> Layer:
    name = str(node.name)
    if not _is_batch_norm(node):
        return Layer(name, node, 0.0)
    if len(node.inputs) != 5 or None in node.inputs:
        raise AdaptationError(f"node '{name}' does not have the five inputs of batch norm: export the model again")
    _, scale, bias, mean, var = node.inputs
    eps = node.attributes.get_float("epsilon", 1e-5)
    return Layer(name, node, eps, scale=scale, bias=bias, mean=mean, var=var)


def _with_types(model: ir.Model, layers: list[Layer]) -> list[Layer]:
    """Set the types and ranks of layers; those that the file does not contain are inferred."""
    inferred: dict[str | None, ir.Value] = {}
    if any(layer.x.dtype is None or layer.x.shape is None for layer in layers):
        copy = ShapeInferencePass(strict_mode=False, check_type=False)(model.clone()).model
        inferred = {output.name: output for node in copy.graph.all_nodes() for output in node.outputs}
    typed = []
    for layer in layers:
        x = inferred.get(layer.x.name, layer.x)
        bias = layer.node.inputs[2]
        dtype = x.dtype or (bias and bias.dtype) or layer.dtype
        typed.append(replace(layer, dtype=dtype, rank=None if x.shape is None else len(x.shape)))
    return typed


def _heads(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes with weights from which an output of the graph is reached without passing other weights."""
    waiting, seen = [output.producer() for output in graph.outputs], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.op_type in _WEIGHTED:
            yield node
        else:
            waiting += [value.producer() for value in node.inputs if value is not None]


def _is_operator(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def _is_batch_norm(node: ir.Node) -> bool:
    return _is_operator(node, "BatchNormalization")
