"""`predbn serve` in a process of its own: killed under load, told to end, started again."""

from __future__ import annotations

import asyncio
import copy
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import predbn
from predbn.serving import Work

from .running import classifier, close, infer_body, pixels, tiny_service

ROOT = Path(__file__).parents[2]


class Process:
    """A server that was started by the command line."""

    def __init__(self, state: Path, *options: str, model: str = "build") -> None:
        command = [sys.executable, "-m", "predbn.cli", "serve", "--model", f"tests.serving.served_model:{model}"]
        command += ["--strategy", "ema", "--port", "0", "--device", "cpu", "--state", str(state), *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        self.log: list[dict] = []
        self.address = self._wait_for("serving")["address"]
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.wait_until_ready()

    def _wait_for(self, event: str) -> dict:
        for line in self.process.stderr:
            entry = json.loads(line)
            self.log.append(entry)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"the server ended: {self.log}")

    def _read_log(self) -> None:
        for line in self.process.stderr:
            self.log.append(json.loads(line) if line.startswith("{") else {"event": line.strip()})

    def wait_until_ready(self) -> None:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.address}/v2/health/ready", timeout=5)
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise AssertionError("the server did not get ready")

    def wait_for_checkpoints(self, count: int) -> None:
        while sum(entry["event"] == "checkpoint" for entry in self.log) < count:
            assert self.process.poll() is None
            time.sleep(0.01)

    def infer(self, seed: int, stream: str) -> torch.Tensor:
        body = json.dumps(infer_body(pixels(seed=seed), stream=stream)).encode()
        with urllib.request.urlopen(f"{self.address}/v2/models/model/infer", body, timeout=30) as answer:
            output = json.load(answer)["outputs"][1]
        return torch.tensor(output["data"]).reshape(output["shape"])

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


@contextmanager
def started(state: Path, *options: str, model: str = "build") -> Iterator[Process]:
    server = Process(state, *options, model=model)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


def alone(count: int) -> list[torch.Tensor]:
    """What a stream gets for its first `count` requests."""
    model = predbn.adapt(classifier(), "ema")
    with torch.inference_mode():
        return [model(pixels(seed=seed)) for seed in range(count)]


def next_answers(state: Path, seed: int, *streams: str) -> dict[str, torch.Tensor]:
    """What streams get from a server in this process, which goes on with the state of the one before."""
    service = tiny_service("ema", state=state)

    async def infer() -> dict[str, torch.Tensor]:
        await service.start()
        work = pixels(seed=seed).numpy()
        answers = {name: torch.from_numpy((await service.infer(Work(work, name))).logits) for name in streams}
        await service.stop()
        return answers

    return asyncio.run(infer())


@pytest.fixture
def default_hangup():
    """What nohup starts ignores SIGHUP, and so does a server: the tests may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
@pytest.mark.usefixtures("default_hangup")
def test_a_server_that_is_told_to_end_saves_its_streams(tmp_path):
    expected = alone(4)
    for seed, (number, code) in enumerate([(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)]):
        with started(tmp_path, "--checkpoint-every", "1000") as server:
            close(server.infer(seed, "a"), expected[seed])
            assert server.end(number) == code
            assert [entry["event"] for entry in server.log[:3]] == ["serving", "checkpoint", "stopped"]
    interrupted = f"interrupted: all requests were answered; streams: their state is in {tmp_path}."
    assert server.log[-1]["event"] == interrupted
    close(next_answers(tmp_path, 3, "a")["a"], expected[3])


def test_a_second_ctrl_c_says_what_was_not_answered_and_saves_the_streams(tmp_path):
    answers: Counter[int] = Counter()

    def client() -> None:
        try:
            server.infer(0, "a")
            answers[200] += 1
        except urllib.error.HTTPError as error:
            answers[error.code] += 1

    with started(tmp_path, model="build_slow") as server:
        clients = [threading.Thread(target=client) for _ in range(20)]  # one stream: they would take ten seconds
        for thread in clients:
            thread.start()
        while not answers[200]:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert server.end(signal.SIGINT) == 130
        for thread in clients:
            thread.join(30)
        said = server.log[-1]["event"]
    assert answers[200] + answers[503] == 20
    assert answers[503] > 10
    assert said == f"interrupted: {answers[503]} requests were not answered; streams: their state is in {tmp_path}."
    model = predbn.adapt(classifier(), "ema")
    with torch.inference_mode():
        expected = [model(pixels(seed=0)) for _ in range(answers[200] + 1)][-1]
    close(next_answers(tmp_path, 0, "a")["a"], expected)


def test_kill_9_under_load_loses_no_more_than_a_checkpoint_interval(tmp_path):
    """Every answer is right, before and after, and what came before the last checkpoint is kept."""
    answered: dict[str, list[torch.Tensor]] = {name: [] for name in "abc"}

    def client(server: Process, stream: str) -> None:
        try:
            for seed in range(100_000):
                answered[stream].append(server.infer(seed, stream))
        except (OSError, http.client.HTTPException):
            pass

    with started(tmp_path, "--checkpoint-every", "0.2") as server:
        clients = [threading.Thread(target=client, args=(server, name)) for name in "abc"]
        for thread in clients:
            thread.start()
        server.wait_for_checkpoints(2)
        before_the_third = {name: len(answers) for name, answers in answered.items()}
        server.wait_for_checkpoints(3)
        server.end(signal.SIGKILL)
        for thread in clients:
            thread.join(30)
    longest = max(map(len, answered.values()))
    expected = alone(longest + 2)
    for answers in answered.values():
        for answer, right in zip(answers, expected, strict=False):
            close(answer, right)
    for stream, answer in next_answers(tmp_path, 1, *answered).items():
        possible = after(before_the_third[stream], len(answered[stream]) + 1)  # one more: its answer may be lost
        assert any(torch.allclose(answer, right, rtol=0, atol=1e-5) for right in possible)


def after(first: int, last: int) -> Iterator[torch.Tensor]:
    """What a stream gets for the pictures of seed 1 after its first `first`, …, `last` requests."""
    model = predbn.adapt(classifier(), "ema")
    with torch.inference_mode():
        for seed in range(last + 1):
            if seed >= first:
                yield copy.deepcopy(model)(pixels(seed=1))
            model(pixels(seed=seed))
