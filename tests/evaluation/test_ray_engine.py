"""Connecting to Ray: the errors when it fails, and a whole run from the command line."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from predbn import cli
from predbn.evaluation import EvaluationError, RayEngine, Results, evaluate, read_plan

from .ray_models import PAUSE

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


@pytest.mark.parametrize("address", ["somewhere", "ray://head:10001", "head:", ":6379", "head:70000", ""])
def test_malformed_addresses_are_refused(address):
    pytest.importorskip("ray")
    with pytest.raises(EvaluationError, match="is not the address of a Ray cluster: write auto, local or host:port"):
        RayEngine(address)


@pytest.mark.parametrize("device", ["cuda:1", "tpu"])
def test_a_certain_gpu_cannot_be_chosen(device):
    with pytest.raises(EvaluationError, match="not one of cpu, cuda and auto"):
        RayEngine(device=device)


def test_a_run_on_a_local_cluster_can_be_interrupted_and_continued(tmp_path):
    pytest.importorskip("ray")
    out = tmp_path / "run"
    options = ["--model", "tests.evaluation.ray_models:slow", "--images", "60", "--batch-size", "60", "--shift", "fog"]
    options += ["--shift", "contrast", "--no-report", "--quiet", "--device", "cpu", "--out", str(out)]
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-m", "predbn.cli", "evaluate", *options, "--engine", "ray", "--address", "local"],
        env={**os.environ, "PYTHONPATH": paths, PAUSE: "0.5"},
        start_new_session=True,
    )
    deadline = time.monotonic() + 150
    try:
        while not list(out.glob("parts/results-*.parquet")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) != 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert _has_ended(process.pid)
    plan, first = read_plan(out / "plan.toml"), len(Results.load(out).frame)
    whole = evaluate(plan, tmp_path / "whole").frame
    assert evaluate(plan, out).frame.equals(whole)
    assert 0 < first < len(whole)


def _has_ended(group: int) -> bool:
    """Whether every process of the group ends soon."""
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
