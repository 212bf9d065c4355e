"""Read and write ONNX files. What is written is one file, even if the weights were in another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx.version_converter
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx_ir.passes.common import InlinePass, NameFixPass

from predbn.common import ModelError, PredbnError, atomic_write, first_line

MAX_BYTES = 2**31 - 2**24
"""Of weights: a protobuf message has at most 2 GB, some of which the graph needs."""


def read_model(path: Path) -> ir.Model:
    """The model of a file with all weights in memory; raises a ModelError if it is not a valid model."""
    try:
        proto = onnx.ModelProto.FromString(path.read_bytes())
    except DecodeError:
        raise _no_model(path) from None
    if not proto.graph.node or not any(opset.domain in ("", "ai.onnx") for opset in proto.opset_import):
        raise _no_model(path)
    with errors_of_file(path):
        model = ir.serde.deserialize_model(proto)
        if "" not in model.opset_imports:  # an older spelling of the same domain
            model.opset_imports[""] = model.opset_imports.pop("ai.onnx")
        ir.external_data.set_base_dir(model.graph, path.absolute().parent)
        _load_weights(model, path)
        if any(node.op_type == "BatchNormalization" for f in model.functions.values() for node in f.all_nodes()):
            InlinePass()(model)  # functions have no initialisers
        NameFixPass()(model)  # nodes need no names in a file, and may share one
    for value in [*model.graph.outputs, *(value for node in model.graph.all_nodes() for value in node.inputs)]:
        if value is not None and not (value.producer() or value.is_graph_input() or value.is_initializer()):
            raise ModelError(f"{path} uses a value {value.name!r} that nothing computes: export it again.")
    return model


def convert(model: ir.Model, path: Path, opset: int) -> ir.Model:
    """The model in a later opset."""
    try:
        return ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), opset))
    except Exception as error:  # the converter raises RuntimeError and more
        raise ModelError(
            f"{path} has opset {model.opset_imports['']} and cannot be converted to {opset} ({first_line(error)}): "
            f"export it again with opset {opset} or later."
        ) from None


@contextmanager
def errors_of_file(path: Path) -> Iterator[None]:
    """Say of any error that it comes from an invalid file: neither onnx nor onnx_ir has a base class of errors.

    Files are not checked before they are used, because runtimes take many that onnx.checker does not.
    """
    try:
        yield
    except (PredbnError, OSError):
        raise
    except Exception as error:
        raise ModelError(f"{path} is not a valid ONNX model ({first_line(error)}): export it again.") from error


def _no_model(path: Path) -> ModelError:
    return ModelError(f"{path} is not an ONNX model: give a file that torch.onnx.export or another exporter wrote.")


def _load_weights(model: ir.Model, path: Path) -> None:
    """Read the weights that are in other files."""
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
    if not file.resolve().is_relative_to(path.resolve().parent):  # a downloaded model could name any file
        raise ModelError(f"{path} has its weights in {file}, outside of its own folder: copy that file next to it.")
    if not file.is_file():
        raise ModelError(f"{path} has its weights in {file.name}, which is missing: copy that file next to it.")
    if file.stat().st_size < (tensor.offset or 0) + (tensor.length or tensor.nbytes):
        raise ModelError(f"{path} has its weights in {file.name}, which is too short: copy that file again.")
    loaded = ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
    tensor.release()
    return loaded


def write_model(model: ir.Model, path: Path) -> None:
    """Write a model with its weights atomically into one file."""
    initializers = (value.const_value for graph in model.graphs() for value in graph.initializers.values())
    if sum(tensor.nbytes for tensor in initializers if tensor is not None) > MAX_BYTES:
        raise ModelError(f"the weights of {path} take more than 2 GB, the limit of an ONNX file.")
    with atomic_write(path) as partial:
        ir.save(model, partial, format="protobuf")
