"""Inference requests and responses of the Open Inference Protocol v2.

A body is JSON, or JSON followed by the bytes of tensors; the header `Inference-Header-Content-Length` is then the
length of the JSON. The stream of a request is the parameter `stream`, the parameter `sequence_id` of Triton's clients,
or the header `x-session-id`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from predbn.norm import DEFAULT_STREAM

from .errors import RequestError
from .model_spec import OUTPUTS, ModelSpec
from .tensors import Array, from_bytes, from_json
from .work import Prediction, Work

JSON_LENGTH = "inference-header-content-length"
SESSION = "x-session-id"
MAX_JSON = 8 << 20
"""In bytes: parsing keeps all other threads waiting, for about 0.1 s at this size."""
MAX_STREAM_ID = 128
"""In characters."""


@dataclass(frozen=True)
class InferRequest:
    """A parsed request: its work, its id, and whether each of the requested outputs is binary."""

    work: Work
    id: str | None
    outputs: dict[str, bool]


def parse_request(
    body: bytes | bytearray, headers: Mapping[str, str], spec: ModelSpec, max_rows: int, client: str = ""
) -> InferRequest:
    """Parse a body. Raises a RequestError if anything about it is wrong."""
    text, binary = split_body(body, headers)
    if len(text) > MAX_JSON:
        raise RequestError(413, f"the JSON has more than {MAX_JSON} bytes: send the tensor as bytes, or fewer rows.")
    request = _object(_parse_json(text), "the request")
    parameters = _object(request.get("parameters", {}), "parameters")
    rows = _parse_input(request.get("inputs"), binary, spec, max_rows)
    stream = stream_id(parameters, headers.get(SESSION))
    starts, ends = (_flag(parameters, name) for name in ("sequence_start", "sequence_end"))
    if stream is None and (starts or ends):
        raise RequestError(400, "sequence_start and sequence_end need a sequence_id: send one.")
    identifier = request.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise RequestError(400, "the id of a request must be a string.")
    work = Work(rows, stream, starts=starts, ends=ends, client=client)
    return InferRequest(work, identifier, _parse_outputs(request, parameters))


def encode_response(request: InferRequest, prediction: Prediction, spec: ModelSpec) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of the response."""
    values = dict(zip(OUTPUTS, (prediction.probabilities, prediction.logits), strict=True))
    outputs, tail = [], []
    for name, is_binary in request.outputs.items():
        output: dict[str, Any] = {"name": name, "datatype": "FP32", "shape": list(values[name].shape)}
        if is_binary:
            tail.append(values[name].astype("<f4", copy=False).tobytes())
            output["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            output["data"] = values[name].ravel().tolist()
        outputs.append(output)
    response: dict[str, Any] = {"model_name": spec.name, "model_version": "1", "outputs": outputs}
    if request.id is not None:
        response["id"] = request.id
    content = json.dumps(response).encode()
    if not tail:
        return content, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", JSON_LENGTH: str(len(content))}
    return b"".join([content, *tail]), headers


def stream_id(parameters: Mapping[str, Any], session: str | None) -> str | None:
    """The stream of a request; None if it names none."""
    sequence = parameters.get("sequence_id")
    sources = {
        "parameter stream": parameters.get("stream"),
        "parameter sequence_id": None if sequence == 0 else sequence,  # 0 and "" mean "no sequence" in Triton's clients
        "header x-session-id": session,
    }
    source_of: dict[str, str] = {}
    for source, value in sources.items():
        if value is None or value == "":
            continue
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise RequestError(400, f"the {source} must be a string or an integer.")
        source_of[str(value)] = source
        if len(str(value)) > MAX_STREAM_ID or not str(value).isprintable():
            raise RequestError(400, f"the {source} must be at most {MAX_STREAM_ID} printable characters.")
        if str(value) == DEFAULT_STREAM:
            raise RequestError(400, f"the stream name '{DEFAULT_STREAM}' is reserved: choose another one.")
    if len(source_of) > 1:
        raise RequestError(400, f"the {' and the '.join(source_of.values())} name different streams: send only one.")
    return next(iter(source_of), None)


def split_body(body: bytes | bytearray, headers: Mapping[str, str]) -> tuple[memoryview, memoryview]:
    """The JSON of a body, and the bytes that follow it."""
    length = headers.get(JSON_LENGTH)
    view = memoryview(body)
    if length is None:
        return view, view[len(view) :]
    is_number = length.isascii() and length.isdecimal() and len(length) < 20  # int() refuses 4,300 digits
    if not is_number or int(length) > len(body):
        raise RequestError(400, f"{JSON_LENGTH} is {length[:20]!r}, but the body has {len(body)} bytes.")
    return view[: int(length)], view[int(length) :]


def _parse_json(text: memoryview) -> Any:
    try:
        return json.loads(bytes(text))
    except (ValueError, RecursionError):
        raise RequestError(400, "the request is not valid JSON.") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(400, f"{what} must be a JSON object.")
    return value


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(400, f"the parameter {name} must be true or false.")
    return value


def _parse_input(inputs: Any, binary: memoryview, spec: ModelSpec, max_rows: int) -> Array:
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise RequestError(400, f"expected a list with one input, '{spec.input}'.")
    entry = _object(inputs[0], "an input")
    if entry.get("name") != spec.input:
        raise RequestError(400, f"unknown input {str(entry.get('name'))[:40]!r}: the model takes '{spec.input}'.")
    if entry.get("datatype") != spec.datatype:
        raise RequestError(
            400, f"input '{spec.input}' is {str(entry.get('datatype'))[:40]}, but the model takes {spec.datatype}."
        )
    shape = _parse_shape(entry.get("shape"), spec)
    if shape[0] > max_rows:
        raise RequestError(413, f"the request has {shape[0]} rows and the limit is {max_rows}: send several requests.")
    size = _object(entry.get("parameters", {}), "the parameters of an input").get("binary_data_size")
    if size is None:
        rows = from_json(spec.input, entry.get("data"), shape, spec.datatype)
    elif size != len(binary):
        raise RequestError(400, f"binary_data_size is {str(size)[:20]}, but {len(binary)} bytes follow the JSON.")
    else:
        rows = from_bytes(spec.input, binary, shape, spec.datatype)
    if rows.dtype.kind == "f" and not (is_finite := np.isfinite(rows).reshape(len(rows), -1).all(1)).all():
        row = int(np.argmin(is_finite))
        raise RequestError(400, f"row {row} of input '{spec.input}' has values that are NaN or infinite: leave it out.")
    return rows


def _parse_shape(shape: Any, spec: ModelSpec) -> tuple[int, ...]:
    is_shape = isinstance(shape, list) and shape and all(type(side) is int for side in shape)
    if not is_shape or tuple(shape[1:]) != spec.row_shape or shape[0] < 1:
        expected = ", ".join(map(str, ("rows", *spec.row_shape)))
        raise RequestError(
            400, f"input '{spec.input}' has the shape {str(shape)[:60]}, but the model takes [{expected}]."
        )
    return tuple(shape)


def _parse_outputs(request: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, bool]:
    """The requested outputs, by default all, and whether each is binary."""
    is_binary = _flag(parameters, "binary_data_output")
    requested = request.get("outputs") or [{"name": name} for name in OUTPUTS]
    if not isinstance(requested, list):
        raise RequestError(400, "outputs must be a list.")
    outputs = {}
    for entry in requested:
        name = _object(entry, "an output").get("name")
        if name not in OUTPUTS:
            raise RequestError(400, f"unknown output {str(name)[:40]!r}: the model has {' and '.join(OUTPUTS)}.")
        of_output = _object(entry.get("parameters", {}), "the parameters of an output")
        if "classification" in of_output:
            raise RequestError(400, "the classification extension (class_count) is not supported: leave it out.")
        outputs[name] = _flag({"binary_data": is_binary, **of_output}, "binary_data")
    return outputs
