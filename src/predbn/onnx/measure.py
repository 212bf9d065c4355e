"""Calibration: one pass over unlabelled source data in onnxruntime.

The model gets mean and variance of each example and channel of every layer's input as additional outputs, of which
`Calibration` is made as in PyTorch. Behind a convolution into which batch norm was folded, a batch norm is inserted:
with the moments μ, σ² of the output over the source data,

    mean = bias = μ,    var = σ²,    scale = √(σ² + eps)

is the identity, so that all of them are measured in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from predbn.common import AdaptationError, Progress, first_line
from predbn.norm import Calibration, CalibrationAccumulator, Statistics

from .layers import Layer, find_layers
from .model_files import errors_of_file, write_model
from .moments import centre
from .nodes import Array, Expression, NodeWriter
from .rewrite import input_of

_RELATIVE_EPS = 1e-8
"""eps behind a convolution, relative to the variance of all its channels: their units are those of the next layer."""
_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


def measure(
    model: ir.Model, path: Path, layers: Sequence[Layer], loader: Iterable[Any], progress: Progress | None = None
) -> list[tuple[Layer, Calibration]]:
    """The layers with their calibrations. Convolutions get parameters; those of single values are left out."""
    accumulators = [CalibrationAccumulator() for _ in layers]
    has_positions = [False] * len(layers)
    stored: list[tuple[Array, Array] | None] = [None] * len(layers)
    done = 0
    for values in _run(model, path, layers, loader):
        for i, (mean, var, *stored_moments) in enumerate(zip(*[iter(values)] * 4, strict=True)):
            mean, var = (torch.from_numpy(t.reshape(*t.shape[:2]).astype(np.float64)) for t in (mean, var))
            is_finite = (mean + var).isfinite().all(1)
            mean, var = mean[is_finite], var[is_finite]
            accumulators[i].update(mean, var + mean * mean)
            has_positions[i] |= bool((var > 0).any())
            stored[i] = stored_moments[0], stored_moments[1]
        done += 1
        if progress is not None:
            progress(done, 0)
    if not done:
        raise AdaptationError("there is no batch of source data; give some with loader=…")
    if min(accumulator.size for accumulator in accumulators) < 2:
        raise AdaptationError("calibration needs at least two finite examples, because it measures their variance")
    measured = [
        _measured(layer, accumulator, moments)
        for layer, accumulator, moments, is_map in zip(layers, accumulators, stored, has_positions, strict=True)
        if is_map or not layer.is_convolution
    ]
    network = sum(calibration.network for _, calibration in measured)
    return [(layer, calibration._replace(network=network)) for layer, calibration in measured]


def _measured(
    layer: Layer, accumulator: CalibrationAccumulator, stored: tuple[Array, Array] | None
) -> tuple[Layer, Calibration]:
    if not layer.is_convolution:
        assert stored is not None
        source = Statistics(*(torch.from_numpy(t.reshape(-1).astype(np.float64)) for t in stored))
        return layer, accumulator.result(layer.eps, source)
    first = accumulator.result(0.0, None)
    eps = _RELATIVE_EPS * float(first.var.mean())
    calibration = accumulator.result(eps, None)
    mean, var = (t.double().numpy() for t in (calibration.mean, calibration.var))
    return replace(layer, eps=eps, scale=np.sqrt(var + eps), bias=mean, mean=mean, var=var), calibration


def _run(model: ir.Model, source: Path, layers: Sequence[Layer], loader: Iterable[Any]) -> Iterator[list[Array]]:
    """For each batch, four arrays per layer: see `_outputs`."""
    try:
        import onnxruntime
    except ImportError:
        raise AdaptationError("source data needs onnxruntime: run `pip install predbn[onnx]`") from None

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning would slow down the loader
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        with errors_of_file(source):
            names = _write_with_outputs(model, layers, path)
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no common class of errors
            raise AdaptationError(f"onnxruntime cannot load the model: {first_line(error)}") from None
        for batch in [loader] if isinstance(loader, torch.Tensor | np.ndarray | Mapping) else loader:
            feeds = _feeds(session.get_inputs(), batch)
            try:
                values: list[Array] = session.run(names, feeds)
            except Exception as error:
                raise AdaptationError(
                    f"onnxruntime cannot predict a batch of source data: {first_line(error)}"
                ) from None
            yield values


def _write_with_outputs(model: ir.Model, layers: Sequence[Layer], path: Path) -> list[str]:
    """Write a copy of the model with additional outputs, and return their names."""
    copy = model.clone()
    count = len(copy.graph.outputs)
    by_name = {layer.name: layer for layer in find_layers(copy, convolutions=True)}
    for layer in (by_name[layer.name] for layer in layers):
        writer = NodeWriter(copy, layer.name, layer.statistics_dtype)
        outputs = [writer.op("Identity", expression).value for expression in _outputs(layer, writer)]
        for value in outputs:
            value.dtype = writer.dtype
        copy.graph.extend(writer.nodes)
        copy.graph.outputs.extend(outputs)
    write_model(copy, path)
    return [str(value.name) for value in copy.graph.outputs[count:]]


def _outputs(layer: Layer, writer: NodeWriter) -> list[Expression]:
    """Mean and variance of each example, and the stored statistics (for a convolution the former once more)."""
    x, rank = input_of(layer, writer)
    centred = centre(x, list(range(2, rank)))
    moments = [centred.mean, centred.var]
    if layer.is_convolution:
        return moments + moments
    return moments + [Expression(writer, value).cast(writer.dtype) for value in layer.node.inputs[3:] if value]


def _feeds(inputs: Sequence[Any], batch: Any) -> dict[str, Array]:
    """A batch as onnxruntime takes it: a dictionary by input name, or as many arrays as the model has inputs."""
    if isinstance(batch, Mapping):
        parts = [batch[spec.name] for spec in inputs if spec.name in batch]
    else:
        parts = list(batch[: len(inputs)]) if isinstance(batch, tuple | list) else [batch]
    if len(parts) != len(inputs):
        names = ", ".join(spec.name for spec in inputs)
        raise AdaptationError(f"source data must be one array for each input of the model: {names}")
    return {spec.name: _as_array(part, spec.type) for spec, part in zip(inputs, parts, strict=True)}


def _as_array(value: Any, input_type: str) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise AdaptationError(f"source data must be NumPy arrays or tensors, but got {type(value).__name__}")
    is_float = value.dtype.kind == "f" and input_type in _FLOATS
    return value.astype(_FLOATS[input_type], copy=False) if is_float else value
