"""The server as a client sees it: what it answers, and what it refuses."""

from __future__ import annotations

import http.client
import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

import predbn
from predbn.serving import RequestError
from predbn.serving.model_spec import spec_of
from predbn.serving.protocol import parse_request
from predbn.serving.tensors import from_json

from ..norm.models import net
from .running import (
    INFER,
    Answer,
    Running,
    classifier,
    close,
    infer_body,
    logits_of,
    pixels,
    running,
    sending,
    tiny_service,
)

SHAPE = "input 'images' has the shape {}, but the model takes [rows, 3, 8, 8]."
NUMBERS = "the data of input 'images' must be a list of UINT8 numbers with the shape [4, 3, 8, 8]."
TWO_STREAMS = "the parameter stream and the parameter sequence_id name different streams: send only one."
SERIES = (
    "predbn_rows_total ",
    'predbn_requests_total{status="200"} ',
    "predbn_batch_rows_bucket{",
    "predbn_waiting_seconds_sum ",
    "predbn_compute_seconds_sum ",
    "predbn_queue_rows 0.0",
    "predbn_streams ",
    'predbn_stream_events_total{event="evicted"} ',
    'predbn_stream_distance{stream="measured"} ',
    'predbn_stream_believed{stream="measured"} ',
)


def changed(**entry: object) -> dict[str, object]:
    """A good request with another entry in its input."""
    body = infer_body(pixels())
    body["inputs"][0].update(entry)
    return body


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 400, "the request is not valid JSON."),
        (b"[" * 100_000, 400, "the request is not valid JSON."),
        (b"\xff\xfe", 400, "the request is not valid JSON."),
        ([], 400, "the request must be a JSON object."),
        ({}, 400, "expected a list with one input, 'images'."),
        ({"inputs": [1]}, 400, "an input must be a JSON object."),
        (changed(name="x"), 400, "unknown input 'x': the model takes 'images'."),
        (changed(datatype="FP32"), 400, "input 'images' is FP32, but the model takes UINT8."),
        (changed(shape=[4, 3, 8, 9]), 400, SHAPE.format("[4, 3, 8, 9]")),
        (changed(shape=[0, 3, 8, 8]), 400, SHAPE.format("[0, 3, 8, 8]")),
        (changed(shape=None), 400, SHAPE.format("None")),
        (changed(shape=[1000, 3, 8, 8]), 413, "the request has 1000 rows and the limit is 16: send several requests."),
        (changed(data=[1, 2]), 400, NUMBERS),
        (changed(data=[0.5] * 768), 400, NUMBERS),
        (changed(data=[[1], [1, 2]]), 400, NUMBERS),
        (changed(data=[1, "2"] * 384), 400, NUMBERS),
        (changed(data=[1, True] * 384), 400, NUMBERS),
        (changed(data=[1, None] * 384), 400, NUMBERS),
        (changed(data=[10**400, 0.5] * 384), 400, NUMBERS),
        (changed(data=[[1]] + [1] * 767), 400, NUMBERS),
        (changed(data=[300] * 768), 400, "input 'images' has values outside UINT8: 0 to 255."),
        (changed(parameters={"binary_data_size": 5}), 400, "binary_data_size is 5, but 0 bytes follow the JSON."),
        (
            {**infer_body(pixels()), "outputs": [{"name": "x"}]},
            400,
            "unknown output 'x': the model has probabilities and logits.",
        ),
        (infer_body(pixels(), stream=1.5), 400, "the parameter stream must be a string or an integer."),
        (infer_body(pixels(), stream="default"), 400, "the stream name 'default' is reserved: choose another one."),
        (infer_body(pixels(), stream="a" * 200), 400, "the parameter stream must be at most 128 printable characters."),
        (infer_body(pixels(), stream="a", sequence_id="b"), 400, TWO_STREAMS),
        (
            infer_body(pixels(), sequence_start=True),
            400,
            "sequence_start and sequence_end need a sequence_id: send one.",
        ),
        (b"x" * 300_000, 413, "the body has more than 200000 bytes: send several requests."),
    ],
)
def test_a_wrong_request_gets_one_sentence_and_the_next_one_is_served(server: Running, body, status, sentence):
    answer = server.ask("POST", INFER, body)
    assert (answer.status, answer.json) == (status, {"error": sentence})
    logits_of(server.infer(pixels()))


def test_strings_among_numbers_take_no_memory():
    """NumPy would make an array of strings, each of the length of the longest one: here 4 GB."""
    data = ["x" * 1_000_000, *[1] * 999]
    tracemalloc.start()
    with pytest.raises(RequestError, match="must be a list of UINT8 numbers"):
        from_json("images", data, (1000,), "UINT8")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_wrong_length_of_the_json(server: Running):
    for length in ("-1", "9999999", "x", "²", "9" * 5000):
        connection = http.client.HTTPConnection(server.address)
        connection.request("POST", INFER, b"{}", {"Inference-Header-Content-Length": length.encode("latin-1")})
        assert connection.getresponse().status == 400


def test_bodies_that_are_refused_without_a_server():
    spec = spec_of(classifier(), "model")
    body = json.dumps(changed(shape=[], data=[])).encode()
    with pytest.raises(RequestError, match=r"has the shape \[\], but the model takes \[rows\]") as refused:
        parse_request(body, {}, replace(spec, row_shape=()), 16)
    assert refused.value.status == 400
    with pytest.raises(RequestError, match="the JSON has more than 8388608 bytes: send the tensor as bytes") as refused:
        parse_request(b" " * (8 << 20) + b"{}", {}, spec, 16)
    assert refused.value.status == 413


def test_unknown_paths_and_models_and_compressed_bodies(server: Running):
    assert server.ask("POST", INFER, b"x", content_encoding="gzip").status == 415
    assert server.ask("GET", "/v3").json == {"error": "GET /v3 is not an endpoint of this server."}
    assert server.ask("GET", INFER).status == 405
    missing = server.ask("POST", "/v2/models/other/infer", infer_body(pixels()))
    assert (missing.status, missing.json) == (404, {"error": "unknown model 'other': this server has 'model'."})


def test_rows_that_are_not_finite_are_refused_by_their_number():
    with running(tiny_service(model=net())) as server:
        rows = torch.randn(4, 3, 8, 8)
        rows[2, 0, 0, 0] = float("nan")
        entry = {"name": "input", "datatype": "FP32", "shape": [4, 3, 8, 8], "parameters": {"binary_data_size": 3072}}
        text = json.dumps({"inputs": [entry]}).encode()

        def ask(rows: torch.Tensor) -> Answer:
            length = {"inference_header_content_length": str(len(text))}
            return server.ask("POST", INFER, text + rows.numpy().tobytes(), **length)

        answer = ask(rows)
        assert answer.status == 400
        assert answer.json["error"] == "row 2 of input 'input' has values that are NaN or infinite: leave it out."
        rows[2, 0, 0, 0] = 0
        close(logits_of(ask(rows)), predbn.adapt(net(), "ema")(rows).detach())


def test_a_stream_is_described_as_describe_does_and_can_be_forgotten(server: Running):
    rows = pixels(seed=5)
    server.infer(rows, stream="hall 3/west")
    server.infer(rows, stream="hall 3/west")
    known = server.ask("GET", "/v2/streams/hall%203/west").json
    model = predbn.adapt(classifier(), "ema")
    for _ in range(2):
        model(rows)
    distances = {layer["name"]: layer["distance"] for layer in known["layers"]}
    assert distances == pytest.approx({layer.name: layer.distance for layer in predbn.describe(model)}, rel=1e-4)
    assert known["distance"] == pytest.approx(np.mean(list(distances.values())))
    assert known["believed"] == pytest.approx(np.mean([layer["used"] for layer in known["layers"]]) / known["distance"])
    assert (known["requests"], known["examples"]) == (2, 8)
    assert known["since"] <= known["last"]
    listed = server.ask("GET", "/v2/streams").json
    assert (listed["model"], listed["strategy"]) == ("model", str(predbn.Ema()))
    assert listed["streams"][0]["id"] == "hall 3/west"
    assert server.ask("DELETE", "/v2/streams/hall%203/west").status == 204
    assert server.ask("GET", "/v2/streams/hall%203/west").status == 404
    assert server.ask("DELETE", "/v2/streams/hall%203/west").json == {"error": "unknown stream 'hall 3/west'."}


def test_nothing_is_kept_about_a_request_without_a_stream(server: Running):
    before = server.ask("GET", "/v2/streams").json["count"]
    close(*(logits_of(server.infer(pixels(seed=3))) for _ in range(2)))
    assert server.ask("GET", "/v2/streams").json["count"] == before
    assert set(predbn.state_dict(server.service.predictor.model)["streams"]) <= {
        "default",
        *server.service.predictor.records,
    }


def test_metrics(server: Running):
    server.infer(pixels(), stream="measured")
    server.ask("GET", "/v3")
    text = server.ask("GET", "/metrics").body.decode()
    for line in SERIES:
        assert f"\n{line}" in text


def test_a_token_keeps_others_out():
    with running(tiny_service(token="secret")) as server:
        assert server.ask("GET", "/v2/health/ready").status == 200
        assert server.ask("GET", "/").status == 200
        for headers in ({}, *({"authorization": value} for value in ("Bearer wrong", "secret", "Basic secret"))):
            answer = server.ask("GET", "/v2/streams", **headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        for value in ("Bearer secret", "bearer secret", "BEARER  secret"):
            assert server.ask("GET", "/v2/streams", authorization=value).status == 200
        for host in ("a/?", "a/v2/health/live?", "a/#", "["):  # part of a URL that names a public path
            assert server.ask("GET", "/v2/streams", host=host).status == 401


def test_a_slow_client_is_cut_off_and_others_are_served():
    with running(tiny_service(timeout=0.3)) as server, sending(server, 1000) as slow:
        logits_of(server.infer(pixels()))
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
