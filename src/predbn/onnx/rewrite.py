"""Write one layer as nodes: moments, statistics, and

    y = c·a + (bias − (μ − centre)·a),    a = scale/√(σ² + eps),    c = x − centre,

which is (x − μ)·a + bias without the rounding error of a large mean. Half precision is computed in single precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from predbn.common import ModelError
from predbn.norm import Auto, Calibration, Ema, Frozen, Prior, Strategy

from .layers import Layer, constant
from .moments import Clipping, Moments, Statistics, centre, count_examples, count_positions, robust_moments
from .nodes import Array, Expression, NodeWriter
from .state import LayerState, State
from .statistics import CleanData, average, clean_from_batch, load_calibration, mix, mixture, pooled


def input_of(layer: Layer, writer: NodeWriter) -> tuple[Expression, int]:
    """The layer's input in the precision of the statistics with at least one dimension of positions, and its rank."""
    x = Expression(writer, layer.x)
    if layer.dtype != writer.dtype:
        x = x.cast(writer.dtype)
    if layer.rank is not None and layer.rank > 2:
        return x, layer.rank
    return x.reshape(0, layer.channels or 0, -1 if layer.rank is None else 1), 3


@dataclass(frozen=True)
class Rewriter:
    """Replaces batch norm by nodes that use the statistics of the strategy, or inserts them behind a convolution."""

    model: ir.Model
    strategy: Strategy
    robust: bool
    layer_count: int
    state: State | None

    def rewrite(self, layer: Layer, calibration: Calibration | None) -> None:
        writer = NodeWriter(self.model, layer.name, layer.statistics_dtype)
        old, new = layer.node.outputs[0], self._normalised(layer, writer, calibration).value
        graph = layer.node.graph
        assert graph is not None
        if not layer.is_convolution:
            ir.convenience.replace_nodes_and_values(graph, layer.node, [layer.node], writer.nodes, [old], [new])
            return
        new.type, new.shape = old.type, old.shape
        graph.insert_after(layer.node, writer.nodes)
        for node, index in list(old.uses()):
            if node not in writer.nodes:
                node.replace_input_with(index, new)

    def _normalised(self, layer: Layer, writer: NodeWriter, calibration: Calibration | None) -> Expression:
        x, rank = input_of(layer, writer)
        shape = (1, layer.channels or -1, *[1] * (rank - 2))
        scale, bias, mean, var = (
            _parameter(writer, name, getattr(layer, name), shape) for name in ("scale", "bias", "mean", "var")
        )
        source, clean, clipping = Statistics(mean, var), None, Clipping()
        if calibration is not None:
            clean, clipping = load_calibration(calibration, x, shape)
        positions = list(range(2, rank))
        centred = centre(x, positions if self.robust else [0, *positions])
        if self.robust:
            clean_var = source.var if clean is None else clean.var
            moments = robust_moments(centred.mean, centred.var, shape, layer.eps, clean_var, clipping)
        else:
            moments = Moments(centred.mean, centred.var, count_examples(x), centre(x.mean(positions), [0]).var)
        chosen = self._statistics(moments._replace(positions=count_positions(x)), source, clean, layer, shape)
        is_batch_mean = not self.robust and chosen.mean is moments.mean
        offset = centred.offset if is_batch_mean else chosen.mean - centred.centre
        factor = scale / (chosen.var + layer.eps).sqrt()
        y = centred.values * factor + (bias - offset * factor)
        if rank != layer.rank:
            y = writer.op("Reshape", y, writer.op("Shape", Expression(writer, layer.x)))
        return y if layer.dtype == writer.dtype else y.cast(layer.dtype)

    def _statistics(
        self, batch: Moments, source: Statistics, clean: CleanData | None, layer: Layer, shape: tuple[int, ...]
    ) -> Statistics:
        """The statistics of the strategy for a batch with these moments, [1, C, 1, 1] each."""
        strategy = self.strategy
        if isinstance(strategy, Prior) and strategy.N > 0:
            return mix(source, batch.statistics, batch.n / (batch.n + strategy.N))
        if isinstance(strategy, Auto):
            clean = clean or clean_from_batch(batch, source, layer.eps, self.layer_count)
            return mixture(batch, clean, source, layer.eps)
        if isinstance(strategy, Ema | Frozen):
            assert self.state is not None
            state = LayerState(self.state, batch.n.writer, shape)
            if isinstance(strategy, Ema):
                return average(strategy, batch, source, state)
            return pooled(strategy, batch, state)
        return batch.statistics


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
