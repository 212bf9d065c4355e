"""A server in a thread of the test, and requests to it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from starlette.routing import Route
from torch import nn

import predbn
from predbn.models import Classifier, ModelInfo, Preprocessing
from predbn.serving import Service, Settings, prepare_service
from predbn.serving.http_server import Server, http_server, open_socket
from predbn.serving.metrics import as_text

from ..norm.models import net

SIZE = 8
INFER = "/v2/models/model/infer"


def classifier() -> Classifier:
    """A small network for pictures of 8 × 8 pixels and 5 classes."""
    preprocessing = Preprocessing((SIZE, SIZE), (127.5, 127.5, 127.5), (64.0, 64.0, 64.0))
    return Classifier(net(), ModelInfo("tiny", 5, preprocessing)).eval()


def calibrated(strategy: str) -> Classifier:
    """The network, calibrated if the strategy uses that."""
    model = classifier()
    return predbn.calibrate(model, [pixels(32, seed) for seed in (2, 3)]) if "auto" in strategy else model


def pixels(n: int = 4, seed: int = 0) -> torch.Tensor:
    """Random pictures; the seed also sets how bright they are."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(20 * (seed % 6), 150 + 20 * (seed % 6), (n, 3, SIZE, SIZE), generator=generator).to(
        torch.uint8
    )


@dataclass
class Answer:
    """The status, the headers and the body of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A server that is running."""

    address: str
    service: Service
    http: Server | None = None

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request. A body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://{self.address}{path}", data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())

    def infer(self, rows: torch.Tensor, **parameters: Any) -> Answer:
        """Send rows as JSON."""
        return self.ask("POST", INFER, infer_body(rows, **parameters))

    def metric(self, line: str) -> float:
        """The value in the line of /metrics that begins so; 0 if there is none."""
        lines = self.ask("GET", "/metrics").body.decode().splitlines()
        return next((float(text.rpartition(" ")[2]) for text in lines if text.startswith(line)), 0.0)


def infer_body(rows: torch.Tensor, **parameters: Any) -> dict[str, Any]:
    """The JSON of a request."""
    entry = {"name": "images", "datatype": "UINT8", "shape": list(rows.shape), "data": rows.flatten().tolist()}
    return {"inputs": [entry], "parameters": parameters}


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    """Logits are the same but for rounding."""
    torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def logits_of(answer: Answer) -> torch.Tensor:
    """The logits of an answer in JSON."""
    assert answer.status == 200, answer.body
    output = next(output for output in answer.json["outputs"] if output["name"] == "logits")
    return torch.tensor(output["data"]).reshape(output["shape"])


def tiny_service(strategy: str = "ema", model: nn.Module | None = None, **settings: Any) -> Service:
    """A service that is not started."""
    example = None
    if model is not None and not isinstance(model, Classifier):
        example = torch.zeros(2, 3, SIZE, SIZE, dtype=next(model.parameters()).dtype)
    return prepare_service(model or classifier(), strategy, Settings(**{"port": 0, **settings}), example=example)


def metrics(service: Service) -> str:
    """What Prometheus reads."""
    return as_text(service.metrics.families()).decode()


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine as a test."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


@contextmanager
def connected(server: Running, address: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A connection from one of the addresses of this machine, 127.x.y.z."""
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30, source_address=(address, 0)) as connection:
        yield connection


@contextmanager
def sending(server: Running, body: bytes | int, address: str = "127.0.0.1", path: str = INFER) -> Iterator[Any]:
    """A request on a connection; one whose body, of so many bytes, does not come, except for the first byte."""
    length, sent = (body, b"{") if isinstance(body, int) else (len(body), body)
    with connected(server, address) as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n".encode() + sent
        )
        yield connection


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something is so, which takes milliseconds unless processes have to start."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@asynccontextmanager
async def started(service: Service) -> AsyncIterator[Service]:
    """Start a service for the length of a block."""
    await service.start()
    yield service
    await service.stop()


@contextmanager
def running(service: Service, routes: Sequence[Route] = ()) -> Iterator[Running]:
    """Run a service on any free port for the length of a block, and stop it cleanly. It may get more addresses."""
    with open_socket(service.settings.host, service.settings.port) as listening:
        server = http_server(service)
        server.config.app.router.routes.extend(routes)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        try:
            yield Running(f"127.0.0.1:{listening.getsockname()[1]}", service, server)
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
