"""Workers on a real Ray cluster of two nodes on this machine; some workers and nodes are killed while they compute."""

import importlib
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from predbn import cli
from predbn.common import package_versions
from predbn.data import Images, sample
from predbn.evaluation import EvaluationError, Plan, RayEngine, Results, evaluate, read_plan
from predbn.evaluation.job import Job
from predbn.evaluation.ray_payload import put_payload
from predbn.evaluation.ray_pool import WorkerResources, check_versions

from . import tiny
from .ray_models import Barrier, KillsWorker, behind

DATA = sample("test").take(120)
MODELS = {f"t/{k}": tiny.classifier(k) for k in range(2)}
SMALL_NODE = {"object_store_memory": 100 << 20, "num_cpus": 1}


@pytest.fixture(scope="module")
def head():
    """The head node of the cluster that the tests of this file share.

    By default Ray gives workers a low priority (a niceness of 15): next to other busy processes they hardly run.
    """
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    options = {**SMALL_NODE, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def cluster(head, time_limit):
    """Two nodes. Starting nodes and workers is what takes time here: the test that loses a node comes last, and the
    one that needs no worker of its own first, so that the next one takes over its process."""
    if not head.worker_nodes:
        head.add_node(**SMALL_NODE)
    return head


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def validation() -> Images:
    """Images of which t/0 classifies about two in three correctly, so that there is a best temperature."""
    images = sample("validation").take(100)
    with torch.no_grad():
        predicted = MODELS["t/0"](images.images).argmax(1)
    return replace(images, labels=torch.where(torch.arange(100) % 3 == 0, images.labels, predicted))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory map in /proc")
def test_data_stays_in_the_object_store_and_models_are_fetched_from_it_when_needed(cluster):
    ray = importlib.import_module("ray")
    job = Job(Plan(list(MODELS), shifts=("clean",)), data=DATA, models=MODELS)

    def inspect(payload):
        address = payload.data.images.data_ptr()
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        spans = {tuple(int(end, 16) for end in span.split("-")): rest for span, *rest in maps}
        (mapping,) = [" ".join(rest) for (low, high), rest in spans.items() if low <= address < high]
        kinds = [type(reference).__name__ for reference in payload.models.values()]
        return mapping, kinds, payload.data.sums, payload.open("cpu").cache.original("t/1").state_dict()

    mapping, kinds, sums, state = ray.get(ray.remote(inspect).options(num_cpus=1).remote(put_payload(job)))
    assert "plasma" in mapping
    assert kinds == ["ObjectRef"] * 2
    assert sums == DATA.sums
    for name, tensor in MODELS["t/1"].state_dict().items():
        assert torch.equal(state[name], tensor)


def test_values_are_those_of_one_process(cluster, tmp_path):
    plan = Plan(
        models=("t/0",),
        methods=("vanilla", "temperature"),
        strategies=("train", "batch", "ema", "population"),
        shifts=("clean", "fog", "mixed-5"),
        severities=(3,),
        batch_sizes=(50,),
        orders=("dirichlet:0.5",),
        seeds=(0, 1),
    )
    inputs = {"data": DATA, "validation": validation(), "models": MODELS}
    evaluate(plan, tmp_path / "one", **inputs)
    calls = []
    with RayEngine(cluster.address) as engine:
        assert engine.device == "cpu"
        results = evaluate(
            plan, tmp_path / "ray", engine=engine, **inputs, progress=lambda done, total, _: calls.append((done, total))
        )
    assert tables(tmp_path / "ray") == tables(tmp_path / "one")
    assert calls == [(done, calls[-1][1]) for done in range(calls[-1][1] + 1)]
    assert results.card["hardware"]["engine"] == "ray"
    assert "cpu" in results.card["hardware"]
    assert importlib.import_module("ray").is_initialized()


def test_a_run_from_the_command_line_can_be_interrupted_and_continued(cluster, tmp_path, monkeypatch):
    out, ended = tmp_path / "run", threading.Event()
    options = ["--model", "tests.evaluation.ray_models:slow", "--images", "60", "--batch-size", "60", "--shift", "fog"]
    options += ["--shift", "contrast", "--no-report", "--quiet", "--device", "cpu", "--cpus-per-worker", "1"]
    monkeypatch.setattr(sys, "argv", ["predbn", "evaluate", *options, "--out", str(out), "--engine", "ray"])

    def interrupt() -> None:
        while not ended.is_set() and not list(out.glob("parts/results-*.parquet")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    ended.set()
    thread.join()
    assert stopped.value.code == 130
    assert no_worker_is_left()
    plan, first = read_plan(out / "plan.toml"), len(Results.load(out).frame)
    whole = evaluate(plan, tmp_path / "whole").frame
    assert evaluate(plan, out).frame.equals(whole)
    assert 0 < first < len(whole)


def no_worker_is_left() -> bool:
    """Whether every actor of the pool ends soon."""
    for _ in range(300):
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        if not any(b"RayWorker" in command for command in commands):
            return True
        time.sleep(0.1)
    return False


def test_a_unit_that_kills_its_workers_is_named(cluster, tmp_path):
    plan = Plan("fatal", shifts=("contrast",), severities=(4,), batch_sizes=(40,))
    with RayEngine(cluster.address, retries=0) as engine, pytest.raises(EvaluationError) as raised:
        evaluate(plan, tmp_path, engine=engine, data=DATA, models={"fatal": behind(KillsWorker())})
    assert "contrast at severity 4 was lost 1 times with its worker" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_error_of_a_unit_is_the_same_as_in_one_process(cluster, tmp_path):
    plan, models = Plan("broken", shifts=("clean",), batch_sizes=(40,)), {"broken": tiny.broken()}
    with pytest.raises(EvaluationError) as in_process:
        evaluate(plan, tmp_path / "one", data=DATA, models=models)
    with RayEngine(cluster.address) as engine, pytest.raises(EvaluationError) as in_worker:
        evaluate(plan, tmp_path / "ray", engine=engine, data=DATA, models=models)
    assert str(in_worker.value) == str(in_process.value)


@pytest.mark.parametrize(
    ("options", "needed"), [({"device": "cuda"}, "1 GPU"), ({"cpus_per_worker": 64, "device": "cpu"}, "64 CPU")]
)
def test_a_cluster_without_room_for_a_worker_is_refused(cluster, tmp_path, options, needed):
    plan = Plan("t/0", shifts=("clean",))
    with (
        RayEngine(cluster.address, **options) as engine,
        pytest.raises(EvaluationError, match=f"no node with {needed}"),
    ):
        evaluate(plan, tmp_path, engine=engine, data=DATA, models=MODELS)


def test_a_model_that_cannot_be_pickled_is_named(cluster, tmp_path):
    model = tiny.classifier()
    model.lock = threading.Lock()
    with RayEngine(cluster.address) as engine, pytest.raises(EvaluationError, match="t/0 cannot be sent"):
        evaluate(Plan("t/0", shifts=("clean",)), tmp_path, engine=engine, data=DATA, models={"t/0": model})


def test_a_lost_node_and_a_lost_worker_do_not_change_the_results(cluster, tmp_path):
    plan = Plan("blocked", shifts=("clean", "contrast", "fog", "brightness"), batch_sizes=(40,))
    evaluate(plan, tmp_path / "one", data=DATA, models={"blocked": tiny.classifier()})
    arrivals = tmp_path / "arrivals"
    arrivals.mkdir()
    opened = tmp_path / "opened"
    head, other = cluster.head_node.node_id, next(iter(cluster.worker_nodes))
    calls = []

    def kill(done: int, total: int, _: str) -> None:
        calls.append((done, total))
        if done == 1:
            cluster.remove_node(other, allow_graceful=False)
        if done == 3:
            (process,) = [path.name.partition("-")[2] for path in arrivals.glob(f"{head}-*")]
            opened.touch()
            os.kill(int(process), signal.SIGKILL)

    three_units = 3 * 3  # of three batches each; every strategy has its own copy of the barrier
    with RayEngine(cluster.address) as engine:
        models = {"blocked": behind(Barrier(arrivals, nodes=2, limit=three_units, opened=opened))}
        evaluate(plan, tmp_path / "ray", engine=engine, data=DATA, models=models, progress=kill)
    assert tables(tmp_path / "ray") == tables(tmp_path / "one")
    assert calls == [(done, 16) for done in range(17)]
    assert len(list(arrivals.iterdir())) >= 3
    assert len(list(arrivals.glob(f"{head}-*"))) == 2


def test_workers_with_other_versions_are_refused():
    cuda_build = package_versions()["torch"].partition("+")[0] + "+cu126"
    check_versions("10.0.0.7", {**package_versions(), "torch": cuda_build})
    with pytest.raises(EvaluationError, match=r"10\.0\.0\.7 has numpy 1\.0, but this machine has"):
        check_versions("10.0.0.7", {**package_versions(), "numpy": "1.0"})


@pytest.mark.parametrize(
    ("resources", "node", "count", "cpus", "gpus"),
    [
        (WorkerResources("cpu"), {"CPU": 8.0}, 1, 8, 0),
        (WorkerResources("cpu", cpus=3), {"CPU": 8.0}, 2, 3, 0),
        (WorkerResources("cpu"), {"memory": 1e9}, 0, None, None),
        (WorkerResources("cuda"), {"CPU": 16.0, "GPU": 4.0}, 4, 4, 1),
        (WorkerResources("cuda"), {"GPU": 1.0}, 1, 0, 1),
        (WorkerResources("cuda", gpus=0.5), {"CPU": 3.0, "GPU": 1.0}, 2, 1, 0.5),
        (WorkerResources("cuda", cpus=8), {"CPU": 16.0, "GPU": 4.0}, 2, 8, 1),
        (WorkerResources("cuda", gpus=2), {"CPU": 16.0, "GPU": 5.0}, 2, 8, 2),
    ],
)
def test_a_node_gets_as_many_workers_as_it_has_room_for(resources, node, count, cpus, gpus):
    assert resources.slots(node) == [{"num_cpus": cpus, "num_gpus": gpus}] * count


@pytest.mark.parametrize("wrong", [{"cpus": 0}, {"gpus": 0}, {"gpus": 1.5}, {"gpus": -1}])
def test_impossible_resources_are_refused(wrong):
    with pytest.raises(EvaluationError, match=r"_per_worker is"):
        WorkerResources("cuda", **wrong)
