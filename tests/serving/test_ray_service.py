"""Replicas on a real Ray cluster on this machine; a server, and a node with a replica, are killed.

A replica takes seconds to start, so the tests share one server.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import predbn
from predbn.serving import ServingError, Settings, save_calibration
from predbn.serving.metrics import as_text
from predbn.serving.serve import service_parts

from .process import process
from .running import (
    Running,
    asynchronous,
    calibrated,
    classifier,
    close,
    logits_of,
    pixels,
    running,
    tiny_service,
    wait_until,
)

pytest.importorskip("ray.serve")
from predbn.serving import ray_replicas, ray_service
from predbn.serving.ray_service import RayService, replica_of

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.usefixtures("time_limit"),
]

STREAMS = "abdc"
"""Of two replicas, the first has a, d and h, the second b, c and g."""
NODE = {"object_store_memory": 100 << 20, "num_cpus": 1}
"""Room for one replica."""


@pytest.fixture(scope="module")
def cluster():
    """A head node, on which Ray Serve itself runs, and another one."""
    import ray
    from ray.cluster_utils import Cluster

    config = {"worker_niceness": 0, "health_check_period_ms": 100}  # a node that is gone is noticed soon
    head = {**NODE, "include_dashboard": False, "_system_config": config}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).resolve()) for path in ("src", *sys.path)))
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.other = cluster.add_node(**NODE)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture(scope="module")
def expected() -> dict[str, list[torch.Tensor]]:
    """What each stream gets for its first requests from a server without replicas, and what a request alone gets."""
    with running(tiny_service("auto_stream", calibrated("auto_stream"))) as server:
        return {**send(server, range(2)), "": [logits_of(server.infer(pixels()))]}


@pytest.fixture(scope="module")
def server(cluster, expected, tmp_path_factory) -> Iterator[Running]:
    """A server with two replicas, after one that had a single replica was killed with state in the same folder."""
    state, calibration = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("model") / "c.safetensors"
    save_calibration(calibrated("auto_stream"), calibration)
    options = ["--strategy", "auto_stream", "--calibration", str(calibration), "--checkpoint-every", "0.1"]
    options += ["--engine", "ray", "--replicas", "1", "--address", cluster.address]
    with process(state, *options) as killed:
        for stream, answers in send(killed, range(1)).items():
            close(answers[0], expected[stream][0])
        wait_for_checkpoints(killed, 0, 2)
        killed.end(signal.SIGKILL)
    assert set(replicas(cluster)) == {0}  # it outlives the server
    with pytest.raises(ServingError, match=r"another process is writing to .*replica-"):
        tiny_service("auto_stream", calibrated("auto_stream"), state=state)
    settings = Settings(port=0, state=state, checkpoint_every=0.2)
    parts = service_parts(calibrated("auto_stream"), "auto_stream", settings)
    with closing(RayService(*parts, replicas=2)) as service, running(service) as server:
        yield server


def send(server: Running, seeds: range) -> dict[str, list[torch.Tensor]]:
    """The answers to the requests of all streams, which are sent at the same time."""

    def client(stream: str) -> list[torch.Tensor]:
        return [logits_of(server.infer(pixels(seed=seed), stream=stream)) for seed in seeds_of(stream, seeds)]

    with ThreadPoolExecutor(len(STREAMS)) as pool:
        return dict(zip(STREAMS, pool.map(client, STREAMS), strict=True))


def seeds_of(stream: str, seeds: range) -> list[int]:
    """Each stream has pictures of its own."""
    return [1000 * ord(stream) + seed for seed in seeds]


def test_a_replica_needs_no_token_of_its_own(monkeypatch, tmp_path):
    started = []

    def start(self, count, strategy, spec, settings, log_level):
        started.append(settings)

    monkeypatch.setattr(ray_replicas.Replicas, "_start", start)
    for name in ("_check_resources", "_end_applications", "_put"):
        monkeypatch.setattr(ray_replicas.Replicas, name, lambda *_: None)
    monkeypatch.setattr(ray_replicas, "connect_to_ray", lambda _: False)
    monkeypatch.setattr(ray_replicas, "_import_serve", lambda: SimpleNamespace(start=lambda **_: None))
    parts = service_parts(classifier(), "ema", Settings(host="0.0.0.0", token="secret", state=tmp_path))
    RayService(*parts).close()
    assert (started[0].token, started[0].state) == (None, tmp_path)


@asynchronous
async def test_metrics_before_the_server_is_ready(monkeypatch, tmp_path):
    """The port for health checks is open before the other one."""
    monkeypatch.setattr(ray_service, "Replicas", lambda *_, **__: None)
    service = RayService(*service_parts(classifier(), "ema", Settings(state=tmp_path)))
    assert b'predbn_replica_up{replica="1"} 0.0' in as_text(await service.metric_families())


def test_a_stream_changes_its_replica_only_to_a_new_one():
    names = [f"camera-{number}" for number in range(2000)]
    before, after = ([replica_of(name, replicas) for name in names] for replicas in (4, 5))
    assert all(400 < count < 600 for count in Counter(before).values())
    moved = {new for old, new in zip(before, after, strict=True) if old != new}
    assert moved == {4}
    assert 300 < sum(new == 4 for new in after) < 500


def test_what_cannot_be_started_is_refused(cluster, tmp_path):
    for replicas, state, message in (
        (2, None, "need state=, a folder that all nodes share"),
        (0, tmp_path, "replicas must be at least 1, got 0"),
        (9, tmp_path, "has 2 CPU, but 9 replicas need one each"),
    ):
        with pytest.raises(ServingError, match=message):
            RayService(*service_parts(classifier(), "ema", Settings(state=state)), replicas=replicas)


def test_a_replica_that_cannot_start_says_why(monkeypatch):
    """With a stand-in for Ray Serve, which tries again for seconds before it gives up."""
    deployment = SimpleNamespace(message="Traceback …\nModuleNotFoundError: No module named 'mine'.")
    application = SimpleNamespace(deployments={"Replica": deployment})
    serve = SimpleNamespace(
        deployment=lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(bind=lambda *_: None)),
        RunTarget=lambda *_, **__: None,
        run_many=lambda _: (_ for _ in ()).throw(RuntimeError("Deploying application predbn-0 failed")),
        status=lambda: SimpleNamespace(applications={"predbn-0": application}),
    )
    replicas = ray_replicas.Replicas.__new__(ray_replicas.Replicas)
    vars(replicas).update(_serve=serve, _prefix="predbn-", _model=None, _device="cpu")
    with pytest.raises(
        ServingError, match=r"cannot be started \(ModuleNotFoundError: No module named 'mine'\): predbn"
    ):
        replicas._start(1, None, None, None, "info")


def test_streams_go_on_in_their_replicas_after_the_server_was_killed(server, expected):
    """The next server ends the replica that was left behind, and has another number of them."""
    for stream, answers in send(server, range(1, 2)).items():
        close(answers[0], expected[stream][1])
        owner = replica_of(stream, 2)
        assert server.metric(f'predbn_stream_examples{{replica="{owner}",stream="{stream}"}}') == 8
        assert server.ask("GET", f"/v2/streams/{stream}").json["examples"] == 8
    overview = server.ask("GET", "/v2/streams").json
    assert (overview["count"], overview["rows"]) == (len(STREAMS), 4 * len(STREAMS))
    assert {entry["id"] for entry in overview["streams"]} == set(STREAMS)
    close(logits_of(server.infer(pixels())), expected[""][0])  # in any replica
    assert server.infer(pixels()[:, :2], stream="a").status == 400
    assert server.ask("DELETE", "/v2/streams/a").status == 204
    assert server.ask("DELETE", "/v2/streams/a").status == 404
    assert server.ask("GET", "/v2/streams/a").status == 404
    (seed,) = seeds_of("a", range(1))
    close(logits_of(server.infer(pixels(seed=seed), stream="a")), expected["a"][0])


class Client(threading.Thread):
    """Sends the requests of a stream one after another; one that is answered with 503 is sent again."""

    def __init__(self, server: Running, stream: str) -> None:
        super().__init__(daemon=True)
        self.server, self.stream = server, stream
        self.attempts: list[tuple[int, torch.Tensor | None]] = []
        self.is_ending = threading.Event()
        self.start()

    def run(self) -> None:
        (seed,) = seeds_of(self.stream, range(1))
        while not self.is_ending.is_set():
            answer = self.server.infer(pixels(seed=seed), stream=self.stream)
            if answer.status == 503:
                assert "retry-after" in answer.headers
                self.attempts.append((seed, None))
                time.sleep(0.1)
                continue
            self.attempts.append((seed, logits_of(answer)))
            seed += 1
            time.sleep(0.02)  # leave the cores to the processes that start

    def end(self) -> None:
        self.is_ending.set()
        self.join(60)
        assert not self.is_alive()

    def check(self, kept: int) -> int:
        """Compare all answers with what the stream gets alone; how many times it went back to a checkpoint.

        A checkpoint may have a request whose answer was lost, but has at least the first `kept` ones.
        """
        model = predbn.adapt(calibrated("auto_stream"), "auto_stream")
        restarts = 0
        with torch.inference_mode():
            for number, (seed, answer) in enumerate(self.attempts):
                if answer is None:
                    continue
                if not is_close(model(pixels(seed=seed)), answer):
                    restarts += 1
                    earlier = [seed for seed, _ in self.attempts[: number + 1]]  # Ray may send it again
                    model = restarted(earlier, kept, seed, answer) or pytest.fail(
                        f"wrong answer {number} of {self.stream}, kept {kept}, refused {earlier.count(seed)}"
                    )
        return restarts


def is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-5)


def restarted(earlier: list[int], kept: int, seed: int, answer: torch.Tensor) -> torch.nn.Module | None:
    """A model after the first `kept` or more of the earlier requests, whose next answer is this one; None if none."""
    model = predbn.adapt(calibrated("auto_stream"), "auto_stream")
    for number in range(len(earlier) + 1):
        if number >= kept:
            candidate = copy.deepcopy(model)
            if is_close(candidate(pixels(seed=seed)), answer):
                return candidate
        if number < len(earlier):
            model(pixels(seed=earlier[number]))
    return None


def wait_for_checkpoints(server: Running, replica: int, count: int) -> None:
    line = f'predbn_checkpoints_total{{outcome="succeeded",replica="{replica}"}}'
    last = server.metric(line) + count
    wait_until(lambda: server.metric(line) >= last)


def wait_for_answers(clients: list[Client], count: int) -> None:
    """Until each client has so many answers more."""

    def answered() -> list[int]:
        assert all(client.is_alive() for client in clients)
        return [sum(answer is not None for _, answer in client.attempts) for client in clients]

    wanted = [number + count for number in answered()]
    wait_until(lambda: all(number >= n for number, n in zip(answered(), wanted, strict=True)))


def replicas(cluster: Any) -> dict[int, tuple[int, int]]:
    """The processes of the replicas on this cluster, and of their nodes, by number; the machine may have others."""
    pids = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_bytes().decode(errors="replace")
            is_replica = title.startswith("ray::ServeReplica:predbn-")
            parent = path.with_name("stat").read_text().rpartition(")")[2].split()[1] if is_replica else "self"
            raylet = Path("/proc", parent, "cmdline").read_text()
        except OSError:
            continue  # it has ended
        if is_replica and cluster.address in raylet:
            pids[int(title.split(":")[3].rpartition("-")[2])] = int(path.parent.name), int(parent)
    return pids


def test_a_node_killed_under_load(cluster, server):
    """No answer is wrong, its streams go on from the last checkpoint, and the other replica does not notice."""
    clients, kept = clients_with_checkpoints(server, "hg")
    before = replicas(cluster)
    (killed,) = (
        number for number, (_, node) in before.items() if node == cluster.other.all_processes["raylet"][0].process.pid
    )
    cluster.add_node(**NODE)
    cluster.remove_node(cluster.other, allow_graceful=False)
    wait_until(lambda: replicas(cluster).get(killed, before[killed]) != before[killed])
    wait_for_answers(clients, 2)
    assert replicas(cluster)[1 - killed] == before[1 - killed]
    for client in clients:
        client.end()
    for client in clients:
        restarts = client.check(kept[client.stream])  # none if the checkpoint had all of its requests
        assert restarts <= (replica_of(client.stream, 2) == killed)


def clients_with_checkpoints(server: Running, streams: str) -> tuple[list[Client], dict[str, int]]:
    """A client per stream, and how many of its requests are at least in a checkpoint."""
    clients = [Client(server, stream) for stream in streams]
    wait_for_answers(clients, 2)
    kept = {client.stream: len(client.attempts) for client in clients}
    for replica in range(2):
        wait_for_checkpoints(server, replica, 2)
    return clients, kept
