"""The OpenAPI description: the paths of the server, and schemas that its answers fit."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
from PIL import Image

from predbn.serving.app import ServingApp

from .running import infer_body, pixels, running, tiny_service

DOCUMENT = json.loads((files("predbn.serving") / "openapi.json").read_text())
METHODS = {"get", "post", "delete"}


def schema_of(path: str, method: str, status: int, kind: str = "application/json") -> dict:
    response = DOCUMENT["paths"][path][method]["responses"][str(status)]
    if "$ref" in response:
        response = DOCUMENT["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return {**response["content"][kind]["schema"], "components": DOCUMENT["components"]}


def test_it_has_the_paths_of_the_server():
    described = {(path, method) for path, item in DOCUMENT["paths"].items() for method in METHODS & item.keys()}
    routes = {
        (route.path.replace("{id:path}", "{id}"), method.lower())
        for route in ServingApp(tiny_service()).routes()
        for method in route.methods - {"HEAD"}
    }
    assert described == routes


@pytest.fixture(scope="module")
def server():
    with running(tiny_service()) as server:
        yield server


@pytest.fixture(scope="module")
def picture(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("picture") / "picture.png"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    return path.read_bytes()


MODEL = "/v2/models/{model}"


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        (f"{MODEL}/infer", 200, json.dumps(infer_body(pixels(), stream="a")).encode()),
        (f"{MODEL}/infer", 400, b"{"),
        (f"{MODEL}/picture", 415, b"no picture"),
        (f"{MODEL}/picture", 200, None),
        (MODEL, 200, ...),
        (f"{MODEL}/ready", 200, ...),
        ("/v2", 200, ...),
        ("/v2/streams", 200, ...),
        ("/v2/health/live", 200, ...),
        ("/v2/health/ready", 200, ...),
        ("/openapi.json", 200, ...),
    ],
)
def test_answers_fit_their_schemas(server, picture, path, status, body):
    method = "get" if body is ... else "post"
    data = None if body is ... else picture if body is None else body
    answer = server.ask(method.upper(), path.replace("{model}", "model"), data)
    assert answer.status == status
    jsonschema.validate(json.loads(answer.body), schema_of(path, method, status))


def test_the_schema_of_a_request_takes_what_the_server_takes():
    schema = {"$ref": "#/components/schemas/InferRequest", "components": DOCUMENT["components"]}
    jsonschema.validate(infer_body(pixels(), stream="a", sequence_id=3), schema)
    with pytest.raises(jsonschema.ValidationError, match="inputs"):
        jsonschema.validate({}, schema)
