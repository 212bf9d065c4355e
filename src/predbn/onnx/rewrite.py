"""Write one layer as nodes: moments, statistics, and

    y = c·a + (bias − (μ − centre)·a),    a = scale/√(σ² + eps),    c = x − centre,

which is (x − μ)·a + bias without the rounding error of a large mean. Half precision is computed in single precision.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from predbn.common import ModelError
from predbn.norm import Calibration, Strategy

from .layers import Layer, constant
from .moments import Clipping, Moments, centre, count_examples, count_positions, robust_moments
from .nodes import Array, Expression, NodeWriter
from .state import State
from .statistics import Statistics, load_calibration, statistics


def input_of(layer: Layer, writer: NodeWriter) -> tuple[Expression, int]:
    """The layer's input in the precision of the statistics with at least one dimension of positions, and its rank."""
    x = Expression(writer, layer.x)
    if layer.dtype != writer.dtype:
        x = x.cast(writer.dtype)
    if layer.rank is not None and layer.rank > 2:
        return x, layer.rank
    return x.reshape(0, layer.channels or 0, -1 if layer.rank is None else 1), 3


def rewrite(
    model: ir.Model,
    layer: Layer,
    strategy: Strategy,
    calibration: Calibration | None,
    *,
    robust: bool,
    layer_count: int,
    state: State | None,
) -> None:
    """Replace a batch norm, or insert one behind a convolution, that uses the statistics of the strategy."""
    writer = NodeWriter(model, layer.name, layer.statistics_dtype)
    y = _normalised(layer, writer, strategy, calibration, robust, layer_count, state)
    graph = layer.node.graph
    assert graph is not None
    if layer.is_convolution:
        _insert_behind(graph, layer.x, writer, y.value)
        return
    ir.convenience.replace_nodes_and_values(
        graph, layer.node, [layer.node], writer.nodes, [layer.node.outputs[0]], [y.value]
    )


def _insert_behind(graph: ir.Graph, x: ir.Value, writer: NodeWriter, y: ir.Value) -> None:
    """Replace x by y in all nodes but the new ones."""
    new_nodes = set(writer.nodes)
    y.type, y.shape = x.type, x.shape
    producer = x.producer()
    assert producer is not None
    graph.insert_after(producer, writer.nodes)
    for node, index in list(x.uses()):
        if node not in new_nodes:
            node.replace_input_with(index, y)


def _normalised(
    layer: Layer,
    writer: NodeWriter,
    strategy: Strategy,
    calibration: Calibration | None,
    robust: bool,
    layer_count: int,
    state: State | None,
) -> Expression:
    x, rank = input_of(layer, writer)
    shape = (1, layer.channels or -1, *[1] * (rank - 2))
    scale, bias, mean, var = (
        _parameter(writer, name, getattr(layer, name), shape) for name in ("scale", "bias", "mean", "var")
    )
    source = Statistics(mean, var)
    clean, clipping = None, Clipping()
    if calibration is not None:
        clean, clipping = load_calibration(calibration, x, shape)
    positions = list(range(2, rank))
    centred = centre(x, positions if robust else [0, *positions])
    if robust:
        clean_var = source.var if clean is None else clean.var
        moments = robust_moments(centred.mean, centred.var, shape, layer.eps, clean_var, clipping)
    else:
        moments = Moments(centred.mean, centred.var, count_examples(x), centre(x.mean(positions), [0]).var)
    moments = moments._replace(positions=count_positions(x))
    chosen = statistics(strategy, moments, source, clean, layer.eps, layer_count, shape, state)
    is_batch_mean = not robust and chosen.mean is moments.mean
    offset = centred.offset if is_batch_mean else chosen.mean - centred.centre
    factor = scale / (chosen.var + layer.eps).sqrt()
    y = centred.values * factor + (bias - offset * factor)
    if rank != layer.rank:
        y = writer.op("Reshape", y, writer.op("Shape", Expression(writer, layer.x)))
    return y if layer.dtype == writer.dtype else y.cast(layer.dtype)


def _parameter(writer: NodeWriter, name: str, value: ir.Value | Array | None, shape: tuple[int, ...]) -> Expression:
    """A parameter of the layer in a shape that broadcasts."""
    assert value is not None
    values = value if isinstance(value, np.ndarray) else constant(value)
    if values is not None:
        if shape[1] not in (-1, values.size):
            raise ModelError(f"a batch norm layer of {shape[1]} channels has {values.size} values of its {name}")
        return writer.constant(name, values.reshape(shape))
    assert isinstance(value, ir.Value)
    return Expression(writer, value).cast(writer.dtype).reshape(*shape)
