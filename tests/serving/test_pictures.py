"""A picture in the body of a request."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import predbn
from predbn.data import read_picture, resize_crop
from predbn.serving import Settings, prepare_service

from ..norm.models import net
from .running import Running, classifier, pixels, running, tiny_service

PICTURE = "/v2/models/model/picture"


def encoded(format: str, size: tuple[int, int] = (12, 10)) -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).save(content, format)
    return content.getvalue()


def bomb(side: int) -> bytes:
    """A PNG of a few bytes whose header promises a picture of so many pixels on each side."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def many_scans(side: int, scans: int) -> bytes:
    """A progressive JPEG of a few kilobytes whose last scan is repeated: each takes as long as a whole picture."""
    content = io.BytesIO()
    Image.new("RGB", (side, side)).save(content, "JPEG", progressive=True)
    head, marker, scan = content.getvalue()[:-2].rpartition(b"\xff\xda")
    return head + (marker + scan) * (scans - head.count(marker)) + b"\xff\xd9"


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_the_classes_are_those_of_the_model(server: Running, format, tmp_path):
    content = encoded(format)
    (tmp_path / "picture").write_bytes(content)
    row = torch.tensor(read_picture(tmp_path / "picture", resize_crop(8))).permute(2, 0, 1)[None]
    expected = predbn.adapt(classifier(), "ema")(row).softmax(1)[0]
    answer = server.ask("POST", PICTURE, content).json
    assert [entry["class"] for entry in answer["classes"]] == expected.argsort(descending=True).tolist()
    assert [entry["probability"] for entry in answer["classes"]] == pytest.approx(
        sorted(expected.tolist())[::-1], abs=1e-5
    )
    assert answer["stream"] is None


def test_a_picture_belongs_to_a_stream(server: Running):
    assert server.ask("POST", f"{PICTURE}?stream=camera-1", encoded("PNG")).json["stream"] == "camera-1"
    assert server.ask("POST", PICTURE, encoded("PNG"), x_session_id="camera-1").status == 200
    assert server.ask("GET", "/v2/streams/camera-1").json["examples"] == 2


NO_PICTURE = "the body is not a picture: send a JPEG or PNG file."
DAMAGED = "the picture is damaged or cut off: send it again."
TOO_LARGE = "the picture has more than 100000 pixels: send a smaller one."


def test_a_wrong_picture_gets_one_sentence_and_the_next_one_is_served(server: Running):
    for content, status, sentence in (
        (b"", 415, NO_PICTURE),
        (b"GIF89a", 415, NO_PICTURE),
        (encoded("JPEG", (100, 100))[:-2000], 422, DAMAGED),
        (encoded("PNG", (100, 100))[:-2000], 422, DAMAGED),
        (bomb(50_000), 413, TOO_LARGE),
        (bomb(5_000), 413, TOO_LARGE),
        (encoded("PNG", (1, 20_000)), 413, TOO_LARGE),  # becomes large when it is resized
        (many_scans(300, 200), 413, "the picture has 200 scans: save it without progressive encoding."),
    ):
        answer = server.ask("POST", PICTURE, content)
        assert (answer.status, answer.json) == (status, {"error": sentence})
    assert server.ask("POST", PICTURE, encoded("PNG")).status == 200
    assert server.ask("POST", PICTURE, many_scans(300, 100)).status == 200


@pytest.mark.parametrize(("labels", "expected"), [(None, "vwxyz"), (tuple("abcde"), "abcde")])
def test_classes_have_the_names_of_the_model_or_those_given(labels, expected):
    model = classifier()
    model.info = replace(model.info, class_names=tuple("vwxyz"))
    with running(prepare_service(model, "train", Settings(port=0), labels=labels)) as server:
        classes = server.ask("POST", PICTURE, encoded("PNG")).json["classes"]
    assert [entry["label"] for entry in classes] == [expected[entry["class"]] for entry in classes]


def test_a_model_that_takes_no_pictures_says_so():
    with running(tiny_service("train", net())) as server:
        answer = server.ask("POST", PICTURE, encoded("PNG"))
        assert (answer.status, answer.json["error"]) == (
            404,
            "model 'model' does not take pictures: use /v2/models/model/infer.",
        )


def test_one_row_that_the_strategy_cannot_use_fails_alone():
    with running(tiny_service("batch")) as server:
        answer = server.ask("POST", PICTURE, encoded("PNG"))
        assert answer.status == 422
        assert "network.bn3" in answer.json["error"]
        assert server.infer(pixels()).status == 200
