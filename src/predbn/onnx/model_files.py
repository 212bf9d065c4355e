"""ONNX files: reading with checks, writing as a whole.

What is written is one file, also if the weights were in another. Only a model that is too large for one, because a
protobuf message ends at 2 GB, gets a second file for its weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from predbn.common import ModelError, atomic_write, first_line

MOST_BYTES = 2**31 - 2**24
"""Weights up to this size go into the file itself, which leaves some space for everything else."""


def read_model(path: Path) -> ir.Model:
    """The model of a file, with all its weights in memory. Raises a ModelError if it is none."""
    try:
        proto = onnx.ModelProto.FromString(path.read_bytes())
    except DecodeError:
        raise _no_model(path) from None
    if not proto.graph.node or not any(each.domain in ("", "ai.onnx") for each in proto.opset_import):
        raise _no_model(path)
    try:
        model = ir.serde.deserialize_model(proto)
        if "" not in model.opset_imports:  # an older spelling of the same domain
            model.opset_imports[""] = model.opset_imports.pop("ai.onnx")
        ir.external_data.set_base_dir(model.graph, path.absolute().parent)
        _load_weights(model, path)
    except ModelError:
        raise
    except Exception as error:  # onnx_ir has no class of errors of its own
        raise ModelError(f"{path} cannot be read as an ONNX model ({first_line(error)}): export it again.") from None
    return model


def _no_model(path: Path) -> ModelError:
    return ModelError(f"{path} is not an ONNX model: give a file that torch.onnx.export or another exporter wrote.")


def _load_weights(model: ir.Model, path: Path) -> None:
    """Read what lies in other files."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _loaded(value.const_value, path)
    for node in model.graph.all_nodes():
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                node.attributes[name] = ir.AttrTensor(name, _loaded(attribute.value, path))


def _loaded(tensor: ir.ExternalTensor, path: Path) -> ir.TensorProtocol:
    file = Path(tensor.path)
    if not file.resolve().is_relative_to(path.resolve().parent):  # a file from elsewhere could name any file here
        raise ModelError(f"{path} has its weights in {file}, outside of its own folder: copy that file next to it.")
    if not file.is_file():
        raise ModelError(f"{path} has its weights in {file.name}, which is missing: copy that file next to it.")
    if file.stat().st_size < (tensor.offset or 0) + (tensor.length or tensor.nbytes):
        raise ModelError(f"{path} has its weights in {file.name}, which is too short: copy that file again.")
    loaded = ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
    tensor.release()
    return loaded


def write_model(model: ir.Model, path: Path) -> None:
    """Write a model as a whole or not at all."""
    data = None
    if sum(tensor.nbytes for tensor in _weights(model)) > MOST_BYTES:
        data = path.with_name(f"{path.name}.data")
        if data.exists():  # another model may need it
            raise ModelError(
                f"{data} exists, but the weights need that name because they fill 2 GB: delete or move it."
            )
    try:
        with atomic_write(path) as partial:
            ir.save(model, partial, format="protobuf", external_data=None if data is None else data.name)
    except BaseException:
        if data is not None:
            data.unlink(missing_ok=True)
        raise


def _weights(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        yield from (value.const_value for value in graph.initializers.values() if value.const_value is not None)
