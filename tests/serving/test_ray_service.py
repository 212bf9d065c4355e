"""Replicas on a real Ray cluster on this machine; some of them, and a node, are killed under load."""

from __future__ import annotations

import copy
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import predbn
from predbn.serving import ServingError, Settings, ray_replicas
from predbn.serving.serve import service_parts

from .running import Running, classifier, logits_of, pixels, running, tiny_service

pytest.importorskip("ray.serve")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.usefixtures("time_limit"),
]

ROOT = Path(__file__).parents[2]
STREAMS = "abcdefgh"
NODE = {"object_store_memory": 100 << 20, "num_cpus": 3}


@pytest.fixture(scope="module")
def cluster():
    """A head node without cores, on which Ray Serve itself runs, and a node for replicas."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"object_store_memory": 100 << 20, "num_cpus": 0, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).resolve()) for path in ("src", *sys.path)))
        cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": {"worker_niceness": 0}})
        try:
            cluster.first = cluster.add_node(**NODE)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


@contextmanager
def ray_server(state: Path, strategy: str = "ema", replicas: int = 2, **settings) -> Iterator[Running]:
    from predbn.serving.ray_service import RayService

    model = classifier()
    if "auto" in strategy:
        predbn.calibrate(model, [pixels(32, seed) for seed in (2, 3)])
    prepared = service_parts(model, strategy, Settings(port=0, state=state, **settings))
    with RayService(*prepared, replicas=replicas) as service, running(service) as server:
        yield server


def send(server: Running, seeds: range) -> dict[str, list[torch.Tensor]]:
    """The answers to the requests of all streams, which are sent at the same time."""

    def client(stream: str) -> list[torch.Tensor]:
        return [logits_of(server.infer(pixels(seed=seed), stream=stream)) for seed in own_seeds(stream, seeds)]

    with ThreadPoolExecutor(len(STREAMS)) as pool:
        return dict(zip(STREAMS, pool.map(client, STREAMS), strict=True))


def own_seeds(stream: str, seeds: range) -> list[int]:
    """Each stream has pictures of its own."""
    return [1000 * STREAMS.index(stream) + seed for seed in seeds]


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def metric(server: Running, line: str) -> float:
    """The value in the line of /metrics that begins so."""
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    found = next((text for text in lines if text.startswith(line)), "0")  # a replica that has just begun has none
    return float(found.rpartition(" ")[2])


def test_a_stream_changes_its_replica_only_to_a_new_one():
    from predbn.serving.ray_service import replica_of

    names = [f"camera-{number}" for number in range(2000)]
    before, after = ([replica_of(name, replicas) for name in names] for replicas in (4, 5))
    assert all(400 < count < 600 for count in Counter(before).values())
    moved = {new for old, new in zip(before, after, strict=True) if old != new}
    assert moved == {4}
    assert 300 < sum(new == 4 for new in after) < 500


def test_a_handler_of_ray_is_not_one_of_the_server():
    ray_replicas._import_serve()
    handler, own = logging.NullHandler(), logging.getLogger("predbn.serving")
    logging.getLogger("ray.serve").addHandler(handler)
    try:
        assert handler not in own.handlers
    finally:
        logging.getLogger("ray.serve").removeHandler(handler)


def test_a_folder_is_needed():
    from predbn.serving.ray_service import RayService

    with pytest.raises(ServingError, match="give state=, one that all nodes share"):
        RayService(*service_parts(classifier(), "ema", Settings()))


def test_more_replicas_than_the_cluster_has_room_for(cluster, tmp_path):
    with (
        pytest.raises(ServingError, match=r"has 3 CPU, but 9 replicas need one each"),
        ray_server(tmp_path, replicas=9),
    ):
        pass


def test_a_replica_that_cannot_start_says_why(cluster, tmp_path, monkeypatch):
    """The server writes its card into a folder that the node of the replicas does not see."""
    monkeypatch.setattr("predbn.serving.ray_replicas.check_folder", lambda *_: None)
    refused = pytest.raises(ServingError, match=r"cannot be started \(.*all nodes must share this folder\): predbn and")
    with refused, ray_server(tmp_path, replicas=1):
        pass
    assert replica_pids(cluster) == {}


@pytest.mark.parametrize("strategy", ["auto_stream", "batch"])
def test_predictions_are_those_of_one_process(cluster, tmp_path, strategy):
    model = classifier()
    predbn.calibrate(model, [pixels(32, seed) for seed in (2, 3)])
    with running(tiny_service(strategy, model)) as server:
        expected = send(server, range(4))
    with ray_server(tmp_path, strategy) as server:
        for stream, answers in send(server, range(4)).items():
            for answer, right in zip(answers, expected[stream], strict=True):
                close(answer, right)


def test_streams_stick_to_their_replica_and_survive_another_number_of_replicas(cluster, tmp_path):
    from predbn.serving.ray_service import replica_of

    with running(tiny_service()) as server:
        expected = send(server, range(9))
    answers: dict[str, list[torch.Tensor]] = {stream: [] for stream in STREAMS}
    for number, replicas in enumerate((2, 3, 1)):
        with ray_server(tmp_path, replicas=replicas, checkpoint_every=1000) as server:
            for stream, own in send(server, range(3 * number, 3 * number + 3)).items():
                answers[stream] += own
                owner = replica_of(stream, replicas)
                sent = 12 * (number + 1)
                assert metric(server, f'predbn_stream_examples{{replica="{owner}",stream="{stream}"}}') == sent
                assert server.ask("GET", f"/v2/streams/{stream}").json["examples"] == sent
            overview = server.ask("GET", "/v2/streams").json
            assert (overview["count"], overview["rows"]) == (len(STREAMS), 12 * len(STREAMS))
            assert {entry["id"] for entry in overview["streams"]} == set(STREAMS)
    for stream in STREAMS:
        for answer, right in zip(answers[stream], expected[stream], strict=True):
            close(answer, right)


def test_a_wrong_request_fails_alone_and_a_stream_can_be_forgotten(cluster, tmp_path):
    with ray_server(tmp_path) as server:
        first = logits_of(server.infer(pixels(), stream="a"))
        assert server.infer(pixels()[:, :2], stream="a").status == 400
        assert server.ask("DELETE", "/v2/streams/a").status == 204
        assert server.ask("DELETE", "/v2/streams/a").status == 404
        assert server.ask("GET", "/v2/streams/a").status == 404
        close(logits_of(server.infer(pixels(), stream="a")), first)
        close(logits_of(server.infer(pixels())), first)  # a request without a stream, in any replica


class Client(threading.Thread):
    """Sends the requests of a stream one after another; one that is answered with 503 is sent again."""

    def __init__(self, server: Running, stream: str) -> None:
        super().__init__(daemon=True)
        self.server, self.stream = server, stream
        self.attempts: list[tuple[int, torch.Tensor | None]] = []
        self.is_ending = threading.Event()
        self.start()

    def run(self) -> None:
        (seed,) = own_seeds(self.stream, range(1))
        while not self.is_ending.is_set():
            answer = self.server.infer(pixels(seed=seed), stream=self.stream)
            if answer.status == 503:
                assert "retry-after" in answer.headers
                self.attempts.append((seed, None))
                time.sleep(0.1)
                continue
            self.attempts.append((seed, logits_of(answer)))
            seed += 1

    def end(self) -> None:
        self.is_ending.set()
        self.join(60)
        assert not self.is_alive()

    def check(self, kept: int) -> int:
        """Compare all answers with what the stream gets alone; how many times it went back to a checkpoint.

        A checkpoint may have a request whose answer was lost, but has at least the first `kept` ones.
        """
        model = predbn.adapt(classifier(), "ema")
        restarts = 0
        with torch.inference_mode():
            for number, (seed, answer) in enumerate(self.attempts):
                if answer is None:
                    continue
                if not is_close(model(pixels(seed=seed)), answer):
                    restarts += 1
                    earlier = [seed for seed, _ in self.attempts[:number]]
                    model = restarted(earlier, kept, seed, answer) or pytest.fail(f"{self.stream}: wrong answer")
        return restarts


def is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-5)


def restarted(earlier: list[int], kept: int, seed: int, answer: torch.Tensor) -> torch.nn.Module | None:
    """A model after the first `kept` or more of the earlier requests, whose next answer is this one; None if none."""
    model = predbn.adapt(classifier(), "ema")
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
    last = metric(server, line) + count
    while metric(server, line) < last:
        time.sleep(0.05)


def wait_for_answers(clients: list[Client], count: int) -> None:
    """Until each client has so many answers more."""
    wanted = [len(client.attempts) + count for client in clients]
    while any(
        sum(answer is not None for _, answer in client.attempts) < n for client, n in zip(clients, wanted, strict=True)
    ):
        assert all(client.is_alive() for client in clients)
        time.sleep(0.05)


def replica_pids(cluster: Any) -> dict[int, int]:
    """The processes of the replicas on this cluster by number; the machine may have others."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_bytes().decode(errors="replace")
            is_replica = title.startswith("ray::ServeReplica:predbn-")
            parent = path.with_name("stat").read_text().rpartition(")")[2].split()[1] if is_replica else "self"
            raylet = Path("/proc", parent, "cmdline").read_text()
        except OSError:
            continue  # it has ended
        if is_replica and cluster.address in raylet:
            found[int(title.split(":")[3].rpartition("-")[2])] = int(path.parent.name)
    return found


def test_a_replica_killed_under_load(cluster, tmp_path):
    """No answer is wrong, its streams go on from the last checkpoint, and the others do not notice."""
    from predbn.serving.ray_service import replica_of

    with ray_server(tmp_path, checkpoint_every=0.2) as server:
        clients = [Client(server, stream) for stream in STREAMS[:4]]
        wait_for_checkpoints(server, 0, 1)
        wait_for_answers(clients, 3)
        kept = {client.stream: len(client.attempts) for client in clients}
        wait_for_checkpoints(server, 0, 2)
        before = replica_pids(cluster)
        os.kill(before[0], signal.SIGKILL)
        wait_for_answers(clients, 5)
        after = replica_pids(cluster)
        assert (after[0] != before[0], after[1]) == (True, before[1])
        for client in clients:
            client.end()
    assert {replica_of(client.stream, 2) for client in clients} == {0, 1}
    for client in clients:
        restarts = client.check(kept[client.stream])  # none if the checkpoint had all of its requests
        assert restarts <= (replica_of(client.stream, 2) == 0)


def test_a_server_that_was_killed_is_replaced_with_its_replicas(cluster, tmp_path):
    """The replicas on the cluster outlive it; the next server ends them before it reads their streams."""
    command = [sys.executable, "-m", "predbn.cli", "serve", "--model", "tests.serving.served_model:build"]
    command += ["--strategy", "ema", "--port", "0", "--state", str(tmp_path), "--checkpoint-every", "0.2"]
    command += ["--device", "cpu", "--engine", "ray", "--address", cluster.address]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        serving = next(entry for entry in map(json.loads, process.stderr) if entry["event"] == "serving")
        killed = Running(serving["address"].removeprefix("http://"), None)
        while True:
            try:
                first = logits_of(killed.infer(pixels(seed=0), stream="a"))
                break
            except OSError:
                time.sleep(0.1)
        for replica in range(2):
            wait_for_checkpoints(killed, replica, 2)
    finally:
        process.kill()
        process.wait()
    assert set(replica_pids(cluster)) == {0, 1}
    with pytest.raises(ServingError, match=r"another process is writing to .*replica-"):
        tiny_service(state=tmp_path)
    with ray_server(tmp_path) as server:
        second = logits_of(server.infer(pixels(seed=1), stream="a"))
    model = predbn.adapt(classifier(), "ema")
    with torch.inference_mode():
        close(first, model(pixels(seed=0)))
        close(second, model(pixels(seed=1)))


def test_a_node_killed_under_load(cluster, tmp_path):
    """All replicas begin anew on another node, with the streams of the last checkpoint."""
    with ray_server(tmp_path, checkpoint_every=0.2) as server:
        clients = [Client(server, stream) for stream in STREAMS[:4]]
        wait_for_answers(clients, 3)
        kept = {client.stream: len(client.attempts) for client in clients}
        for replica in range(2):
            wait_for_checkpoints(server, replica, 2)
        cluster.add_node(**NODE)
        cluster.remove_node(cluster.first, allow_graceful=False)
        wait_for_answers(clients, 5)
        for client in clients:
            client.end()
    for client in clients:
        assert client.check(kept[client.stream]) <= 1
