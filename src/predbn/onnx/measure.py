"""One pass over unlabelled source data in onnxruntime: what each layer looks like when nothing has shifted.

The model gets further outputs, mean and variance of each example and channel of every layer's input. `Calibration` is
made of them as in PyTorch. A convolution into which batch norm was folded gets the statistics that it lacks: with the
moments μ, σ² of its output over the source data, a batch norm with

    mean = bias = μ,    var = σ²,    scale = √(σ² + eps)

changes nothing as long as it normalises with these, so that all of them are measured in the same pass.
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

from .layers import Layer
from .model_files import write_model
from .moments import centre
from .nodes import Array, Expression, NodeWriter
from .rewrite import input_of

_RELATIVE_EPS = 1e-8
"""eps behind a convolution, relative to the variance of all its channels: their units are those of the next layer."""
_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


def measure(
    model: ir.Model, layers: Sequence[Layer], loader: Iterable[Any], progress: Progress | None = None
) -> list[tuple[Layer, Calibration]]:
    """The layers with their calibrations. Convolutions get their parameters; those without positions are left out."""
    for layer in layers:
        if layer.node.graph is not model.graph:
            raise AdaptationError(
                f"node '{layer.name}' is in a branch or a loop, where onnxruntime does not show what it gets: leave it "
                "out with layers=…, or adapt without source data"
            )
    accumulators = [CalibrationAccumulator() for _ in layers]
    has_positions = [False] * len(layers)
    stored: list[tuple[Array, Array] | None] = [None] * len(layers)
    done = 0
    for values in _run(model, layers, loader):
        for i, (mean, var, *own) in enumerate(zip(*[iter(values)] * 4, strict=True)):
            mean, var = (torch.from_numpy(t.reshape(*t.shape[:2]).astype(np.float64)) for t in (mean, var))
            is_finite = (mean + var).isfinite().all(1)
            mean, var = mean[is_finite], var[is_finite]
            accumulators[i].update(mean, var + mean * mean)
            has_positions[i] |= bool((var > 0).any())
            stored[i] = own[0], own[1]
        done += 1
        if progress is not None:
            progress(done, 0)
    _check_sizes(accumulators, done)
    measured = [
        _measured(layer, accumulator, own)
        for layer, accumulator, own, is_map in zip(layers, accumulators, stored, has_positions, strict=True)
        if is_map or not layer.is_convolution
    ]
    network = sum(calibration.network for _, calibration in measured)
    return [(layer, calibration._replace(network=network)) for layer, calibration in measured]


def _check_sizes(accumulators: list[CalibrationAccumulator], batches: int) -> None:
    if not batches:
        raise AdaptationError("the loader gave no batch; calibration needs unlabelled source data")
    if min(accumulator.size for accumulator in accumulators) < 2:
        raise AdaptationError("calibration needs two finite examples or more: it measures how much they differ")


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


def _run(model: ir.Model, layers: Sequence[Layer], loader: Iterable[Any]) -> Iterator[list[Array]]:
    """For each batch, four arrays per layer: see `_outputs`."""
    try:
        import onnxruntime
    except ImportError:
        raise AdaptationError("source data needs onnxruntime: run `pip install predbn[onnx]`") from None

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # leave the cores to the loader
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        names = _write_with_outputs(model, layers, path)
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common class
            raise AdaptationError(f"onnxruntime cannot load the model: {first_line(error)}") from None
        for batch in [loader] if isinstance(loader, torch.Tensor | np.ndarray | Mapping) else loader:
            feeds = _feeds(session.get_inputs(), batch)
            try:
                values: list[Array] = session.run(names, feeds)
            except Exception as error:
                raise AdaptationError(
                    f"onnxruntime cannot predict a batch of the loader: {first_line(error)}"
                ) from None
            yield values


def _write_with_outputs(model: ir.Model, layers: Sequence[Layer], path: Path) -> list[str]:
    """Write the model with further outputs, whose names are returned. Afterwards it is as it was."""
    graph = model.graph
    count, known = len(graph.outputs), set(graph.initializers)
    writers = [NodeWriter(model, layer.name, layer.statistics_dtype) for layer in layers]
    for layer, writer in zip(layers, writers, strict=True):
        shown = [writer.op("Identity", each).value for each in _outputs(layer, writer)]
        for value in shown:
            value.dtype = writer.dtype
        graph.extend(writer.nodes)
        graph.outputs.extend(shown)
    names = [str(value.name) for value in graph.outputs[count:]]
    write_model(model, path)
    del graph.outputs[count:]
    graph.remove([node for writer in writers for node in writer.nodes], safe=True)
    for name in set(graph.initializers) - known:
        del graph.initializers[name]
    return names


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
        parts = [batch.get(each.name) for each in inputs]
        missing = [each.name for each, part in zip(inputs, parts, strict=True) if part is None]
        if missing:
            raise AdaptationError(f"the loader gave no value for the input '{missing[0]}'; give one for each input")
    else:
        parts = list(batch[: len(inputs)]) if isinstance(batch, tuple | list) else [batch]
    if len(parts) != len(inputs):
        names = ", ".join(each.name for each in inputs)
        raise AdaptationError(f"the model has the inputs {names}: the loader has to give an array for each of them")
    return {each.name: _as_array(part, each.type) for each, part in zip(inputs, parts, strict=True)}


def _as_array(value: Any, wanted: str) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise AdaptationError(f"the loader gave a {type(value).__name__}; give NumPy arrays or tensors")
    is_other_float = value.dtype.kind == "f" and wanted in _FLOATS
    return value.astype(_FLOATS[wanted], copy=False) if is_other_float else value
