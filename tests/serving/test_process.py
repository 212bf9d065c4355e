"""`predbn serve` in a process of its own: killed under load, told to end, started again."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest
import torch

import predbn
from predbn.serving import Work

from .process import Process, process
from .running import classifier, close, logits_of, pixels, sending, started, tiny_service, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


def alone(count: int) -> list[torch.Tensor]:
    """What a stream gets for its first `count` requests."""
    model = predbn.adapt(classifier(), "ema")
    with torch.inference_mode():
        return [model(pixels(seed=seed)) for seed in range(count)]


def next_answers(state: Path, seed: int, *streams: str) -> dict[str, torch.Tensor]:
    """What streams get from a server in this process, which goes on with the state of the one before."""

    async def infer() -> dict[str, torch.Tensor]:
        async with started(tiny_service(state=state)) as service:
            works = [Work(pixels(seed=seed).numpy(), name) for name in streams]
            return {str(work.stream): torch.from_numpy((await service.infer(work)).logits) for work in works}

    return asyncio.run(infer())


def test_a_server_that_is_told_to_end_saves_its_streams(tmp_path):
    expected = alone(4)
    for seed, (number, code) in enumerate([(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)]):
        with process(tmp_path, "--checkpoint-every", "1000") as server:
            close(logits_of(server.infer(pixels(seed=seed), stream="a")), expected[seed])
            assert server.end(number) == code
            assert [entry["event"] for entry in server.log[:4]] == ["serving", "ending", "checkpoint", "stopped"]
    interrupted = f"interrupted: all requests were answered; streams: their state is in {tmp_path}."
    assert server.log[-1]["event"] == interrupted
    close(next_answers(tmp_path, 3, "a")["a"], expected[3])


@pytest.mark.parametrize(("interrupts", "options"), [(1, ("--timeout", "1")), (2, ())])
def test_ctrl_c_says_what_was_not_answered_and_saves_the_streams(tmp_path, interrupts, options):
    """Requests that are answered with 503 after a second, or at the second Ctrl-C, and one that does not arrive."""
    answers: Counter[int] = Counter()

    def client() -> None:
        answers[server.infer(pixels(seed=0), stream="a").status] += 1

    with process(tmp_path, *options, model="build_slow") as server, sending(server, 1000) as half:
        clients = [threading.Thread(target=client) for _ in range(30)]  # one stream: they would take three seconds
        for thread in clients:
            thread.start()
        wait_until(lambda: bool(answers))
        os.kill(server.process.pid, signal.SIGINT)
        server.wait_for("ending")
        assert server.end(signal.SIGINT if interrupts == 2 else 0) == 130
        for thread in clients:
            thread.join(30)
        answers[half.recv(1000)[9:12] == b"408" or 0] += 1
        said = server.log[-1]["event"]
    assert answers[0] == interrupts - 1
    assert answers[503] > 0
    assert answers[200] + answers[503] == 30
    refused = answers[503] + answers[0]
    assert said == f"interrupted: {refused} requests were not answered; streams: their state is in {tmp_path}."
    model = predbn.adapt(classifier(), "ema")
    with torch.inference_mode():
        possible = [model(pixels(seed=0)) for _ in range(31)][answers[200] :]
    (answer,) = next_answers(tmp_path, 0, "a").values()  # more may have been counted than were answered
    assert any(torch.allclose(answer, right, rtol=0, atol=1e-5) for right in possible)


def test_kill_9_under_load_loses_no_more_than_a_checkpoint_interval(tmp_path):
    """Every answer is right, before and after, and what came before the last checkpoint is kept."""
    answered: dict[str, list[torch.Tensor]] = {name: [] for name in "abc"}

    def client(server: Process, stream: str) -> None:
        with suppress(OSError, HTTPException):
            for seed in range(100_000):
                answered[stream].append(logits_of(server.infer(pixels(seed=seed), stream=stream)))

    with process(tmp_path, "--checkpoint-every", "0.1") as server:
        clients = [threading.Thread(target=client, args=(server, name)) for name in "abc"]
        for thread in clients:
            thread.start()
        server.wait_for("checkpoint", 2)
        before_the_third = {name: len(answers) for name, answers in answered.items()}
        server.wait_for("checkpoint", 3)
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
