"""Triton's own HTTP client, which nobody here has written, talks to the server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import predbn

from .running import Running, classifier, pixels

http = pytest.importorskip("tritonclient.http")


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[http.InferenceServerClient]:
    with http.InferenceServerClient(server.address) as client:
        yield client


def infer(client, rows: torch.Tensor, *, binary: bool = True, **options) -> np.ndarray:
    sent = http.InferInput("images", list(rows.shape), "UINT8")
    sent.set_data_from_numpy(rows.numpy(), binary_data=binary)
    wanted = [http.InferRequestedOutput("logits", binary_data=binary)]
    return client.infer("model", [sent], outputs=wanted, **options).as_numpy("logits")


def alone(*batches: torch.Tensor) -> np.ndarray:
    """What the model gives for the last of several batches of a stream, without a server."""
    model = predbn.adapt(classifier(), "ema")
    with torch.inference_mode():
        return [model(batch) for batch in batches][-1].numpy()


def test_health(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("model")
    assert client.is_model_ready("model", "1")


def test_metadata(client):
    assert client.get_server_metadata()["name"] == "predbn"
    model = client.get_model_metadata("model")
    assert model["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 3, 8, 8]}]
    assert [output["name"] for output in model["outputs"]] == ["probabilities", "logits"]
    assert model["outputs"][0]["shape"] == [-1, 5]


@pytest.mark.parametrize("binary", [True, False])
def test_predictions_are_those_of_the_model(client, binary):
    np.testing.assert_allclose(infer(client, pixels(), binary=binary), alone(pixels()), atol=1e-5)


def test_without_wanted_outputs_all_come_as_bytes(client):
    sent = http.InferInput("images", [4, 3, 8, 8], "UINT8")
    sent.set_data_from_numpy(pixels().numpy())
    result = client.infer("model", [sent], request_id="seven")
    probabilities = torch.from_numpy(alone(pixels())).softmax(1).numpy()
    np.testing.assert_allclose(result.as_numpy("probabilities"), probabilities, atol=1e-6)
    np.testing.assert_allclose(result.as_numpy("logits"), alone(pixels()), atol=1e-5)
    assert result.get_response()["id"] == "seven"


@pytest.mark.parametrize("sequence", [7, "camera-7"])
def test_a_sequence_is_a_stream(client, sequence):
    first, second = pixels(seed=1), pixels(seed=2)
    np.testing.assert_allclose(infer(client, first, sequence_id=sequence, sequence_start=True), alone(first), atol=1e-5)
    np.testing.assert_allclose(infer(client, second, sequence_id=sequence), alone(first, second), atol=1e-5)
    begun_anew = infer(client, second, sequence_id=sequence, sequence_start=True)
    np.testing.assert_allclose(begun_anew, alone(second), atol=1e-5)
    np.testing.assert_allclose(
        infer(client, first, sequence_id=sequence, sequence_end=True), alone(second, first), atol=1e-5
    )
    np.testing.assert_allclose(infer(client, first, sequence_id=sequence), alone(first), atol=1e-5)


def test_other_ways_to_name_a_stream(client, server):
    first, second, third = (pixels(seed=seed) for seed in (1, 2, 3))
    infer(client, first, parameters={"stream": "many names"})
    infer(client, second, headers={"x-session-id": "many names"})
    last = infer(client, third, sequence_id="many names")
    np.testing.assert_allclose(last, alone(first, second, third), atol=1e-5)


def test_an_error_has_a_sentence(client):
    sent = http.InferInput("pictures", [4, 3, 8, 8], "UINT8")
    sent.set_data_from_numpy(pixels().numpy())
    with pytest.raises(Exception, match="unknown input 'pictures': the model takes 'images'"):
        client.infer("model", [sent])
