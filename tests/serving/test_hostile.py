"""Clients that take more than their share, go away, send nonsense or belong to somebody else, and what others notice.

Every test is about one way to harm a server. Clients have different addresses of this machine, 127.x.y.z (Linux).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import signal
import sys
import threading
import time
import tracemalloc
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from predbn.serving import Prediction, RequestError, ServingError, Settings, Work
from predbn.serving import app as serving_app
from predbn.serving import http_server as serving_http
from predbn.serving.batcher import Batcher
from predbn.serving.errors import OverloadError
from predbn.serving.http_server import health_thread, open_socket
from predbn.serving.logs import RateLimit
from predbn.serving.shares import Shares

from ..norm.models import net
from . import virtual_time
from .running import (
    INFER,
    Running,
    asynchronous,
    connected,
    infer_body,
    logits_of,
    pixels,
    running,
    sending,
    started,
    tiny_service,
    wait_until,
)
from .test_batcher import Model, batcher, work
from .test_pictures import PICTURE, encoded

other_addresses = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")


@pytest.fixture(autouse=True)
def _short_delay(monkeypatch) -> None:
    monkeypatch.setattr(OverloadError, "DELAY", 0.01)


# Shares


def test_whoever_takes_all_that_he_can_leaves_room_for_others():
    shares = Shares(120)
    while shares.take(1, "a", ("a", 1)):
        pass
    assert shares.used == 40  # a stream leaves as much for other streams of its client, and for other clients
    while shares.take(1, "a", ("a", 2)):
        pass
    assert 50 < shares.used < 60
    assert shares.take(20, "b", ("b", 1))
    shares.give_back(20, "b", ("b", 1))
    for number in range(1000):
        shares.take(1, "a", ("a", number))
    assert shares.used == 60
    assert shares.take(20, "b", ("b", 1))


def test_a_share_is_free_again_when_it_is_given_back():
    shares = Shares(10)
    for _ in range(100):
        assert shares.take(5, "a")
        assert not shares.take(6, "b")
        shares.give_back(5, "a")
    assert shares.take(11, "a")  # alone, anything goes
    assert not shares.take(1, "b")


HOGS = {
    "many requests of one stream": [Work(np.zeros((16, 1)), "hog", client="c0")] * 70,
    "more requests of one stream": [Work(np.zeros((4, 1)), "hog", client="c0")] * 85,
    "many streams": [Work(np.zeros((4, 1)), f"hog {i}", client="hog") for i in range(128)],
    "large requests": [Work(np.zeros((64, 1)), f"hog {i}", client="hog") for i in range(8)],
    "no streams": [Work(np.zeros((4, 1)), None, client="hog")] * 128,
}


PAUSES = {name: [0.002, 0.01, 0.03] for name in HOGS}
PAUSES["large requests"].remove(0.03)  # they begin while nobody else is there, and a batch is not interrupted


@pytest.mark.parametrize("one_per_stream", [True, False])
@pytest.mark.parametrize(("hog", "pause"), [(hog, pause) for hog, pauses in PAUSES.items() for pause in pauses])
def test_ordinary_clients_keep_their_throughput_beside_a_hog(hog, pause, one_per_stream):
    async def served(*hogs: Work) -> int:
        answered: Counter[str] = Counter()

        async def model(works: list[Work]) -> list[Prediction]:
            await asyncio.sleep(0.01 + 0.001 * sum(len(work.rows) for work in works))
            return [Prediction(work.rows, work.rows) for work in works]

        async def client(work: Work, pause: float) -> None:
            while True:
                await batches.submit(work)
                answered[work.stream] += 1
                await asyncio.sleep(pause)

        batches = Batcher(model, max_wait=0.005, max_batch=64, one_per_stream=one_per_stream)
        ordinary = [Work(np.zeros((4, 1)), f"s{i}", client=f"c{i}") for i in range(8)]
        tasks = [asyncio.ensure_future(client(work, pause * (1 + i / 8))) for i, work in enumerate(ordinary)]
        tasks += [asyncio.ensure_future(client(work, 0.001)) for work in hogs]
        await asyncio.sleep(10)
        for task in tasks:
            task.cancel()
        await batches.close()
        assert not hogs or answered[hogs[0].stream] > 0  # nobody starves
        return sum(answered[work.stream] for work in ordinary)

    assert virtual_time.run(served(*HOGS[hog])) > 0.7 * virtual_time.run(served())


@pytest.mark.parametrize("streams", [400, 5000])
def test_a_stream_that_comes_back_soon_does_not_wait_until_no_others_come(streams):
    """64 connections of one client, each request of a random stream; in turn they would take 0.3 s."""

    async def waits() -> list[float]:
        async def model(works: list[Work]) -> list[Prediction]:
            await asyncio.sleep(0.01 + 0.001 * sum(len(work.rows) for work in works))
            return [Prediction(work.rows, work.rows) for work in works]

        async def client(number: int) -> None:
            draw = random.Random(number)
            while (begin := now()) < 10:
                await batches.submit(Work(np.zeros((4, 1)), str(draw.randrange(streams))))
                waited.append(now() - begin)

        now, waited = asyncio.get_running_loop().time, list[float]()
        batches = Batcher(model, max_wait=0.005, max_batch=64, rows_of_base=10, one_per_stream=True)
        await asyncio.gather(*map(client, range(64)))
        await batches.close()
        return waited

    p99, longest = np.quantile(virtual_time.run(waits()), [0.99, 1])
    assert p99 < 0.7
    assert longest < 1.5


@asynchronous
async def test_a_stream_without_others_has_the_whole_model():
    model = Model()
    batches = batcher(model, one_per_stream=False, max_batch=4)
    model.may_run.clear()
    tasks = [asyncio.create_task(batches.submit(work(1, "a", mark))) for mark in range(13)]
    await asyncio.sleep(0.02)
    model.may_run.set()
    await asyncio.gather(*tasks)
    assert [len(batch) for batch in model.batches] == [4, 4, 4, 1]


@other_addresses
def test_a_client_that_fills_the_queue_is_refused_unread_and_others_are_served():
    with running(tiny_service(max_queue=20, max_rows=8)) as server, ExitStack() as opened:
        hogs = [opened.enter_context(sending(server, 1000, "127.0.0.2")) for _ in range(15)]
        refused = hogs[-1].recv(1000)  # although its body does not come
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"the queue is full: send the request again later." in refused
        assert server.infer(pixels(8)).status == 200
        assert server.metric('predbn_requests_total{status="503"}') >= 1


def test_a_stream_that_fills_the_queue_leaves_room_for_other_streams_of_its_client():
    service = tiny_service(max_queue=30, max_rows=4)
    release = threading.Event()
    predict = service.predictor.predict
    with running(service) as server, ExitStack() as opened:
        service.predictor.predict = lambda works: (release.wait(30), predict(works))[1]
        body = json.dumps(infer_body(pixels(2), stream="hog")).encode()
        for _ in range(10):
            opened.enter_context(sending(server, body))
        wait_until(lambda: server.metric('predbn_requests_total{status="503"}') >= 5)
        answers: list[int] = []
        other = threading.Thread(target=lambda: answers.append(server.infer(pixels(), stream="other").status))
        other.start()
        wait_until(lambda: server.metric("predbn_queue_rows") >= 4 or bool(answers))
        release.set()
        other.join(30)
        assert answers == [200]


@other_addresses
def test_a_client_that_fills_the_memory_leaves_room_for_others():
    with running(tiny_service(max_memory=20_000)) as server, ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(sending(server, 5000, "127.0.0.2"))
        with sending(server, 5000, "127.0.0.2") as last:
            refused = last.recv(1000)
            assert b"too many requests at once" in refused
            assert b"retry-after: 1\r\n" in refused
        assert server.infer(pixels()).status == 200
        assert server.ask("GET", "/v2/health/ready").status == 200


@other_addresses
def test_a_client_that_opens_all_connections_leaves_some_for_others():
    with running(tiny_service(max_connections=20)) as server, ExitStack() as opened:
        for _ in range(15):
            opened.enter_context(connected(server, "127.0.0.2"))
        wait_until(lambda: server.metric("predbn_refused_connections_total") == 5)
        assert server.infer(pixels()).status == 200
    assert not server.service.is_ready


def test_a_client_that_tries_again_at_once_is_refused_later_the_more_often_it_does(monkeypatch):
    async def sleep(seconds: float) -> None:
        delays.append(seconds)
        await original(0.05)

    original, delays = asyncio.sleep, []
    monkeypatch.setattr(serving_app, "_MAX_REFUSALS", 1)
    with running(tiny_service(max_queue=4, max_rows=4)) as server, ExitStack() as opened:
        monkeypatch.setattr(asyncio, "sleep", sleep)
        for _ in range(5):
            opened.enter_context(sending(server, 1000))
        wait_until(lambda: {1, 2, 3} <= set(delays))
        monkeypatch.setattr(asyncio, "sleep", original)


def test_refusals_are_logged_at_a_bounded_rate(monkeypatch):
    now = 0.5
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limit = RateLimit()

    def logged(event: str) -> bool:
        record = logging.makeLogRecord({"msg": event})
        passed = limit.filter(record)
        left_out.append(getattr(record, "left_out", 0))
        return bool(passed)

    left_out: list[int] = []
    assert sum(logged("request refused") for _ in range(1000)) == 10
    assert sum(logged("Unsupported upgrade request.") for _ in range(1000)) == 10  # of uvicorn
    assert all(logged("request") for _ in range(100))  # the access log was asked for
    now = 1.5
    assert logged("request refused")
    assert left_out[-1] == 990


# Health


def test_health_has_a_port_and_a_thread_of_its_own():
    service = tiny_service(max_connections=8)
    with running(service) as server, open_socket("127.0.0.1", 0) as listening, health_thread(service, listening):
        health = Running(f"127.0.0.1:{listening.getsockname()[1]}", service)
        blocked, release = threading.Event(), threading.Event()
        loop = service._batcher._task.get_loop()
        loop.call_soon_threadsafe(lambda: (blocked.set(), release.wait(30)))
        assert blocked.wait(30)
        assert health.ask("GET", "/v2/health/live").status == 200
        assert health.ask("GET", "/v2/health/ready").json == {"ready": True}
        assert "predbn_requests_total" in health.ask("GET", "/metrics").body.decode()
        assert health.ask("GET", "/v2/streams").status == 404
        release.set()
        assert server.ask("GET", "/v2/health/live").status == 200


def test_a_server_that_is_about_to_end_says_that_it_is_not_ready_and_still_predicts():
    with running(tiny_service(shutdown_delay=1000)) as server:
        server.http.should_exit = True
        wait_until(lambda: server.ask("GET", "/v2/health/ready").status == 503)
        assert server.ask("GET", "/v2/health/live").status == 200
        assert server.infer(pixels()).status == 200
        server.http.signals.append(signal.SIGINT)  # who presses Ctrl-C does not wait


# Memory and time


def test_a_body_is_not_kept_after_its_request_has_failed():
    def fail() -> None:
        for body in (b"x" * 1_000_000, b" " * 1_000_000 + b"{"):
            assert server.ask("POST", INFER, body).status == 400
            assert server.ask("POST", PICTURE, body).status == 415
        with connected(server) as endless:
            endless.sendall(
                b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % INFER.encode()
            )
            for _ in range(3):
                endless.sendall(b"80000\r\n" + b"x" * 0x80000 + b"\r\n")
            assert endless.recv(1000).startswith(b"HTTP/1.1 413 ")
        with sending(server, 1_000_000) as gone:
            gone.sendall(b"x" * 900_000)

    with running(tiny_service(max_body=1_200_000)) as server:
        fail()
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(5):
                fail()
            wait_until(lambda: server.metric('predbn_requests_total{status="499"}') == 6)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert after - before < 1_000_000


def test_large_json_and_pictures_are_decoded_on_threads_and_in_turns(monkeypatch):
    threads: list[str] = []
    for name in ("parse_request", "picture_row"):
        original = getattr(serving_app, name)

        def decode(*arguments, original=original):
            threads.append(threading.current_thread().name)
            return original(*arguments)

        monkeypatch.setattr(serving_app, name, decode)
    with running(tiny_service()) as server:
        body = json.dumps(infer_body(pixels(100))).encode()  # 19,200 numbers
        assert server.ask("POST", INFER, body).status == 200
        assert server.ask("POST", INFER, body, inference_header_content_length=str(len(body))).status == 200
        server.ask("POST", PICTURE, encoded("PNG"))
    assert [name.startswith("predbn-decoder") for name in threads] == [True] * 3


@other_addresses
def test_a_client_whose_pictures_take_long_does_not_stop_those_of_others(monkeypatch):
    release = threading.Event()
    decode = serving_app.picture_row

    def decode_slowly(content, *arguments):
        if content.startswith(b"{"):
            release.wait(30)
        return decode(content, *arguments)

    monkeypatch.setattr(serving_app, "picture_row", decode_slowly)
    with running(tiny_service(timeout=1)) as server, ExitStack() as opened:
        for _ in range(4):
            slow = opened.enter_context(sending(server, b"{", "127.0.0.2", PICTURE))
        assert server.ask("POST", PICTURE, encoded("PNG")).status == 200
        assert b"the body was not decoded within 1 s" in slow.recv(1000)
        release.set()


# Other sites, other clients


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_pages_of_other_sites_change_no_stream_even_over_plain_http(host):
    with running(tiny_service(host=host, public=True)) as server:
        for origin in ("http://evil.example", "null", f"https://{server.address}.evil.example", ""):
            answer = server.ask("POST", INFER, infer_body(pixels(), stream="a"), origin=origin)
            assert (answer.status, answer.json["error"]) == (403, "cross-site requests are refused.")
        assert server.ask("GET", "/v2/streams/a").status == 404
        assert server.ask("DELETE", "/v2/streams/a", sec_fetch_site="cross-site").status == 403
        assert server.ask("POST", INFER, infer_body(pixels()), origin=f"http://{server.address}").status == 200
        for name, status in (("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:1", 200), ("a@localhost", 403)):
            assert server.ask("GET", "/v2/streams", host=name).status == (200 if host == "0.0.0.0" else status)
        for name in ("[", "rebound.example:8080"):  # a name that the page's site has given to this address
            assert server.ask("GET", "/v2/streams", host=name).status == (200 if host == "0.0.0.0" else 403)


def test_a_public_address_needs_a_token_or_a_decision():
    for host in ("0.0.0.0", "", "::", "192.0.2.1", "example.org"):
        with pytest.raises(ServingError, match="set a token"):
            Settings(host=host)
        assert not Settings(host=host, token="secret").is_local
        assert not Settings(host=host, public=True).is_local
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.7"):
        assert Settings(host=host).is_local
    for token in ("", " ", "a b", "ü", "a\n"):
        with pytest.raises(ServingError, match="the token must be printable ASCII without spaces, and not empty"):
            Settings(token=token)


def test_a_path_with_a_slash_at_its_end_is_not_redirected_to_whatever_host_is_given():
    with running(tiny_service(host="0.0.0.0", public=True)) as server:
        assert server.ask("GET", "/metrics/", host="evil.example").status == 404


WHOLE = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("setting", "sent"),
    [
        ("header_timeout", b""),
        ("header_timeout", b"POST / HTTP/1.1\r\n"),
        ("header_timeout", WHOLE[:-2] + b"X: " + b"y" * 1000),
        ("keep_alive", WHOLE),
    ],
)
def test_a_header_that_does_not_arrive_in_time_ends_the_connection(setting, sent):
    with running(tiny_service(**{setting: 0.1})) as server, connected(server) as slow:
        slow.settimeout(4)  # less than without the setting
        slow.sendall(sent)
        while slow.recv(1000):  # the answer to the whole one
            assert setting == "keep_alive"


def test_a_header_without_end_ends_the_connection():
    with running(tiny_service()) as server, connected(server) as endless, pytest.raises(ConnectionError):
        endless.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(10_000):
            endless.sendall(b"x: " + b"y" * 10_000 + b"\r\n")


def test_a_body_that_was_refused_must_arrive_in_time_too():
    with running(tiny_service(header_timeout=0.1, max_body=100)) as server, sending(server, 1000) as slow:
        assert slow.recv(1000).startswith(b"HTTP/1.1 413 ")
        assert slow.recv(1000) == b""


# Requests


def test_a_request_whose_client_has_gone_is_not_predicted():
    service = tiny_service(timeout=1000)
    predicted: list[str | None] = []
    release, is_running = threading.Event(), threading.Event()
    predict = service.predictor.predict

    def slowly(works):
        predicted.extend(work.stream for work in works)
        is_running.set()
        release.wait(30)
        return predict(works)

    with running(service) as server:
        service.predictor.predict = slowly
        first = threading.Thread(target=server.infer, args=(pixels(),), kwargs={"stream": "first"})
        first.start()
        assert is_running.wait(30)
        body = json.dumps(infer_body(pixels(), stream="gone")).encode()
        with sending(server, body):
            wait_until(lambda: server.metric("predbn_queue_rows") == 4)
        wait_until(lambda: server.metric("predbn_queue_rows") == 0)
        release.set()
        first.join(30)
        logits_of(server.infer(pixels(), stream="last"))
        assert server.metric('predbn_requests_total{status="499"}') == 1
    assert predicted == ["first", "last"]


def test_a_prediction_that_takes_too_long_is_given_up():
    service = tiny_service(timeout=0.1)
    predict, release = service.predictor.predict, threading.Event()
    with running(service) as server:
        service.predictor.predict = lambda works: (release.wait(30), predict(works))[1]
        given_up = server.infer(pixels(), stream="a")
        assert (given_up.status, given_up.headers["retry-after"]) == (503, "5")
        assert "within 0.1 s, but the stream may have counted the rows" in given_up.json["error"]
        release.set()
        service.settings.__dict__["timeout"] = 30.0
        assert server.infer(pixels(), stream="a").status == 200


@pytest.mark.filterwarnings("ignore:layer 'bn1' got 4 examples that are not finite")
def test_finite_rows_that_are_too_large_are_the_fault_of_the_client():
    with running(tiny_service(model=net())) as server:
        rows = torch.randn(4, 3, 8, 8)
        entry = {"name": "input", "datatype": "FP32", "shape": [4, 3, 8, 8]}

        def ask(rows: torch.Tensor) -> int:
            body = {"inputs": [{**entry, "data": rows.flatten().tolist()}], "parameters": {"stream": "a"}}
            answer = server.ask("POST", INFER, body)
            assert answer.status == 200 or "whose inputs go up to 3e+38: scale them" in answer.json["error"]
            return answer.status

        assert [ask(rows), ask(torch.full_like(rows, 3e38)), ask(rows)] == [200, 422, 200]


def test_the_classification_of_triton_is_refused_and_not_ignored():
    body = {**infer_body(pixels()), "outputs": [{"name": "logits", "parameters": {"classification": 2}}]}
    with running(tiny_service()) as server:
        answer = server.ask("POST", INFER, body)
    assert (answer.status, "class_count" in answer.json["error"]) == (400, True)


# What is recorded


def test_every_request_has_an_id_and_a_line_if_asked_for(caplog):
    with caplog.at_level(logging.INFO, "predbn.serving"), running(tiny_service(access_log=True)) as server:
        assert server.ask("GET", "/v2", x_request_id="mine").headers["x-request-id"] == "mine"
        ids = {server.ask("POST", INFER, b"{").headers["x-request-id"] for _ in range(2)}
        assert server.ask("GET", "/v3", x_request_id="z" * 1000).headers["x-request-id"] == "z" * 128
    lines = [record for record in caplog.records if record.message == "request"]
    assert [(line.method, line.path, line.status) for line in lines[:2]] == [("GET", "/v2", 200), ("POST", INFER, 400)]
    assert len(ids) == 2 == len(ids & {line.id for line in lines})
    assert lines[0].client == "127.0.0.1"
    refused = [record for record in caplog.records if record.message == "request refused"]
    assert ids <= {record.id for record in refused}
    assert (refused[0].status, refused[0].path, refused[0].reason) == (400, INFER, "the request is not valid JSON.")


def test_latency_is_that_of_whole_requests_and_paths_that_do_not_exist_count():
    with running(tiny_service()) as server:
        for _ in range(3):
            server.infer(pixels())
        server.ask("GET", "/v3")
        assert server.metric("predbn_request_seconds_count") == 3
        assert server.metric('predbn_requests_total{status="404"}') == 1
        assert server.metric("process_resident_memory_bytes") > 0


@pytest.mark.parametrize("named", [True, False])
def test_metrics_name_streams_only_if_wanted(named):
    with running(tiny_service(stream_metrics=named)) as server:
        server.infer(pixels(), stream="patient 7")
        assert ("patient 7" in server.ask("GET", "/metrics").body.decode()) == named


@asynchronous
async def test_the_model_is_warm_before_the_server_is_ready():
    service = tiny_service()
    ready: list[bool] = []
    service.predictor.model.register_forward_hook(lambda *_: ready.append(service.is_ready))
    async with started(service):
        assert ready == [False] * 6
        assert service.predictor.records == {}


def test_more_connections_than_open_files_are_refused_or_the_limit_is_raised(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = {"soft": 100, "hard": 5000}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limits["soft"], limits["hard"]))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.update(soft=pair[0]))
    serving_http.allow_open_files(2000)
    assert 2000 < limits["soft"] < 5000
    with pytest.raises(ServingError, match=r"6000 connections need .* open files, but the limit is 5000"):
        serving_http.allow_open_files(6000)


@asynchronous
async def test_a_second_ctrl_c_refuses_what_waits_and_saves_the_rest():
    model = Model()
    batches = batcher(model)
    model.may_run.clear()
    first = asyncio.create_task(batches.submit(work(8, "a", 1)))
    await asyncio.sleep(0.02)
    waiting = [asyncio.create_task(batches.submit(work(1, "a", mark))) for mark in range(3)]
    await asyncio.sleep(0)
    batches.abandon()
    for task in waiting:
        with pytest.raises(RequestError, match="shutting down"):
            await task
    model.may_run.set()
    assert int((await first).logits[0, 0]) == 1
    await batches.close()
