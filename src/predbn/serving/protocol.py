"""The Open Inference Protocol v2: what an inference request says, and what is answered.

A body is JSON, or JSON followed by the bytes of tensors; the header `Inference-Header-Content-Length` then says how
long the JSON is. The stream of a request is the parameter `stream`, the parameter `sequence_id` that Triton's clients
send, or the header `x-session-id`.
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
from .tensors import DATATYPES, Array, from_bytes, from_json
from .work import Prediction, Work

JSON_LENGTH = "inference-header-content-length"
SESSION = "x-session-id"
MAX_JSON = 8 << 20
"""The most bytes of JSON. Nothing else can be answered while it is parsed, which takes about 0.1 s for so many."""
MAX_STREAM_ID = 128
"""The most characters of a stream's id."""


@dataclass(frozen=True)
class InferRequest:
    """A parsed request: its work, its id, and the outputs to answer with, each as binary or not."""

    work: Work
    id: str | None
    outputs: dict[str, bool]


def parse_request(body: bytes, headers: Mapping[str, str], spec: ModelSpec, max_rows: int) -> InferRequest:
    """The request of a body; a RequestError with one sentence if something about it is wrong."""
    text, binary = _split(body, headers.get(JSON_LENGTH))
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
        raise RequestError(400, "the id of a request must be a text.")
    return InferRequest(Work(rows, stream, starts=starts, ends=ends), identifier, _parse_outputs(request, parameters))


def encode_response(request: InferRequest, prediction: Prediction, spec: ModelSpec) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of the answer."""
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
    answer: dict[str, Any] = {"model_name": spec.name, "model_version": "1", "outputs": outputs}
    if request.id is not None:
        answer["id"] = request.id
    text = json.dumps(answer).encode()
    if not tail:
        return text, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", JSON_LENGTH: str(len(text))}
    return b"".join([text, *tail]), headers


def stream_id(parameters: Mapping[str, Any], session: str | None) -> str | None:
    """The stream that a request names; None if it names none, and then stands alone."""
    named = {"parameter stream": parameters.get("stream"), "parameter sequence_id": parameters.get("sequence_id")}
    named["header x-session-id"] = session
    found: dict[str, str] = {}
    for where, value in named.items():
        if value is None or value == "" or (value == 0 and "sequence" in where):  # Triton's values for "no sequence"
            continue
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise RequestError(400, f"the {where} must be a text or an integer.")
        found[str(value)] = where
        if len(str(value)) > MAX_STREAM_ID or not str(value).isprintable():
            raise RequestError(400, f"the {where} must be at most {MAX_STREAM_ID} printable characters.")
        if str(value) == DEFAULT_STREAM:
            raise RequestError(400, f"no stream may be called '{DEFAULT_STREAM}': choose another name.")
    if len(found) > 1:
        raise RequestError(400, f"the {' and the '.join(found.values())} name different streams: send one of them.")
    return next(iter(found), None)


def _split(body: bytes, length: str | None) -> tuple[memoryview, memoryview]:
    """The JSON of a body, and the bytes that follow it."""
    view = memoryview(body)
    if length is None:
        return view, view[len(view) :]
    is_number = (
        length.isascii() and length.isdecimal() and len(length) < 20
    )  # Python converts no more than 4,300 digits
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
        raise RequestError(400, f"the model takes one input, '{spec.input}': send exactly that in a list of inputs.")
    entry = _object(inputs[0], "an input")
    if entry.get("name") != spec.input:
        raise RequestError(400, f"there is no input {str(entry.get('name'))[:40]!r}: the model takes '{spec.input}'.")
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
    _check_finite(rows, spec)
    return rows


def _parse_shape(shape: Any, spec: ModelSpec) -> tuple[int, ...]:
    is_shape = isinstance(shape, list) and shape and all(type(side) is int for side in shape)
    if not is_shape or tuple(shape[1:]) != spec.row_shape or shape[0] < 1:
        expected = ", ".join(map(str, ("rows", *spec.row_shape)))
        raise RequestError(
            400, f"input '{spec.input}' has the shape {str(shape)[:60]}, but the model takes [{expected}]."
        )
    return tuple(shape)


def _check_finite(rows: Array, spec: ModelSpec) -> None:
    """Raise an error that names the first row that is not finite."""
    if DATATYPES[spec.datatype].kind != "f":
        return
    is_finite = np.isfinite(rows).reshape(len(rows), -1).all(1)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise RequestError(400, f"row {row} of input '{spec.input}' has values that are NaN or infinite: leave it out.")


def _parse_outputs(request: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, bool]:
    """The outputs that are asked for, by default all, and whether each is wanted as bytes."""
    is_binary = _flag(parameters, "binary_data_output")
    wanted = request.get("outputs")
    if not wanted:
        return dict.fromkeys(OUTPUTS, is_binary)
    if not isinstance(wanted, list):
        raise RequestError(400, "outputs must be a list.")
    outputs = {}
    for entry in wanted:
        name = _object(entry, "an output").get("name")
        if name not in OUTPUTS:
            raise RequestError(400, f"there is no output {str(name)[:40]!r}: the model gives {' and '.join(OUTPUTS)}.")
        own = _object(entry.get("parameters", {}), "the parameters of an output")
        outputs[name] = _flag({"binary_data": is_binary, **own}, "binary_data")
    return outputs
