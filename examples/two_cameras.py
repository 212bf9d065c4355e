"""One server, two cameras, each with the statistics of its own stream; beside it, both in one stream.

    pip install "predbn[serve]"
    python examples/two_cameras.py

Camera `day` sends clean pictures of CIFAR-10 and camera `fog` foggy ones, in turn, ten at a time. A client names its
stream, and needs nothing but HTTP. The strategy is the server's default, `auto_stream`, which is calibrated first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import torch
from torch import Tensor

from predbn.data import sample
from predbn.models import load
from predbn.shifts import corrupt

MODEL, URL = "zoo:resnet20-cifar10/batch/0", "http://127.0.0.1:8765/v2"
COUNT, BATCH = 400, 10


def call(path: str, content: Any = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(f"{URL}/{path}", body) as answer:  # noqa: S310  # our own server
        return json.loads(answer.read() or "null")


def predict(images: Tensor, stream: str) -> Tensor:
    """The classes that the server predicts for a batch of a stream."""
    tensor = {"name": "images", "datatype": "UINT8", "shape": list(images.shape), "data": images.flatten().tolist()}
    answer = call("models/model/infer", {"inputs": [tensor], "parameters": {"stream": stream}})
    (probabilities,) = (output for output in answer["outputs"] if output["name"] == "probabilities")
    return torch.tensor(probabilities["data"]).reshape(probabilities["shape"]).argmax(1)


def wait_until_ready(server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            call("health/ready")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    raise SystemExit('the server did not start: pip install "predbn[serve]"')


def main() -> None:
    data = sample("test")
    images, labels = data.images[:COUNT], data.labels[:COUNT]
    cameras = {"day": images, "fog": corrupt(images, "fog", 5, seed=0, index=range(COUNT))}
    right = {(camera, kind): 0 for kind in ("own", "shared") for camera in cameras}
    predbn = [sys.executable, "-m", "predbn.cli"]
    calibration = ["--model", MODEL, "--out", "two-cameras.safetensors"]
    subprocess.run([*predbn, "calibrate", "--data", "sample", *calibration], check=True)
    served = ["--model", MODEL, "--calibration", "two-cameras.safetensors", "--port", "8765", "--log-level", "error"]
    server = subprocess.Popen([*predbn, "serve", *served])
    try:
        wait_until_ready(server)
        for start in range(0, COUNT, BATCH):
            rows = slice(start, start + BATCH)
            for camera, kind in right:
                stream = camera if kind == "own" else "both-cameras"
                right[camera, kind] += int((predict(cameras[camera][rows], stream) == labels[rows]).sum())
    finally:
        server.terminate()
        server.wait()
    model = load(MODEL)
    print(f"{'accuracy, %':12}{'not adapted':>14}{'one stream for both':>22}{'a stream each':>16}")
    for camera, pictures in cameras.items():
        with torch.inference_mode():
            plain = int((model(pictures).argmax(1) == labels).sum())
        counts = (plain, right[camera, "shared"], right[camera, "own"])
        not_adapted, shared, own = (f"{100 * count / COUNT:.1f}" for count in counts)
        print(f"{camera:12}{not_adapted:>14}{shared:>22}{own:>16}")


if __name__ == "__main__":
    main()
