"""Connecting to Ray, and the errors when it fails."""

import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from predbn import cli
from predbn.evaluation import EvaluationError, RayEngine

RUN = ("evaluate", "--model", "zoo:resnet20-cifar10/batch/0", "--images", "100", "--batch-size", "100")


def unused_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def failure(monkeypatch, capsys, *arguments: str) -> str:
    """The error of `predbn evaluate --engine ray`, which must be one line, with exit code 1."""
    monkeypatch.setattr(sys, "argv", ["predbn", *RUN, "--engine", "ray", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


def test_without_ray_the_error_says_how_to_install_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert 'error: ray is not installed: run `pip install "predbn[ray]"`, or leave out --engine ray.' in failure(
        monkeypatch, capsys, "--out", str(tmp_path / "run")
    )
    assert not (tmp_path / "run").exists()


def test_an_address_where_nobody_listens(monkeypatch, capsys):
    pytest.importorskip("ray")
    address = f"127.0.0.1:{unused_port()}"
    message = failure(monkeypatch, capsys, "--address", address)
    assert f"no Ray cluster answers at {address} (Connection refused): start one with `ray start --head`" in message


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", None])
def test_an_address_where_something_else_listens(reply, monkeypatch):
    """A server that speaks HTTP, and one that never answers."""
    pytest.importorskip("ray")
    monkeypatch.setattr("predbn.evaluation.ray_engine._CONNECT_SECONDS", 0.2 if reply is None else 5)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            with suppress(OSError):  # the socket is closed at the end of the test
                while True:
                    connection, _ = server.accept()
                    connection.recv(1024)
                    if reply is not None:
                        connection.sendall(reply)
                        connection.close()

        threading.Thread(target=serve, daemon=True).start()
        start = time.monotonic()
        with pytest.raises(EvaluationError, match=r"^no Ray cluster answers at .* \(something else does\): start one"):
            RayEngine(f"127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - start < 4


@pytest.mark.parametrize("is_healthy", [True, False])
def test_a_cluster_that_wants_a_token(monkeypatch, is_healthy):
    """Whether it answers the health check without a token depends on the version of Ray."""
    grpc, ray = pytest.importorskip("grpc"), pytest.importorskip("ray")

    class Health(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(self.answer)

        def answer(self, request, context):
            if not is_healthy:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is needed")
            return b""

    def fail(**options):
        raise ConnectionError("Failed to connect to Ray cluster")

    monkeypatch.setattr(ray, "init", fail)
    server = grpc.server(ThreadPoolExecutor(1), handlers=[Health()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with pytest.raises(EvaluationError, match=rf"cluster at {address} answers, but refuses .*set RAY_AUTH_MODE=token"):
        RayEngine(address)
    server.stop(None)


def test_a_local_cluster_is_started_and_stopped(monkeypatch):
    ray, calls = pytest.importorskip("ray"), []
    monkeypatch.setattr("os.environ", {})
    monkeypatch.setattr(ray, "init", lambda **options: calls.append(options))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append("shutdown"))
    with RayEngine("local") as engine:
        assert engine.device == "cpu"
    assert calls[0] | {"address": "local", "include_dashboard": False} == calls[0]
    assert calls[1:] == ["shutdown"]
    assert os.environ == {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@pytest.mark.parametrize("address", ["somewhere", "ray://head:10001", "head:", ":6379", "head:70000", ""])
def test_malformed_addresses_are_refused(address):
    pytest.importorskip("ray")
    with pytest.raises(EvaluationError, match="is not the address of a Ray cluster: write auto, local or host:port"):
        RayEngine(address)


@pytest.mark.parametrize("device", ["cuda:1", "tpu"])
def test_a_certain_gpu_cannot_be_chosen(device):
    with pytest.raises(EvaluationError, match="not one of cpu, cuda and auto"):
        RayEngine(device=device)
