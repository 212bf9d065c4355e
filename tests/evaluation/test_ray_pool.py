"""A real Ray cluster of two nodes on this machine, whose workers and nodes are lost while it computes."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from predbn.common import versions
from predbn.data import Images, sample
from predbn.evaluation import EvaluationError, Plan, RayEngine, evaluate
from predbn.evaluation.job import Job
from predbn.evaluation.ray_nodes import Node
from predbn.evaluation.ray_payload import put_payload
from predbn.evaluation.ray_pool import _check_versions
from predbn.evaluation.ray_worker import Greeting

from . import tiny
from .ray_models import Fatal, Gate, behind

ray = pytest.importorskip("ray")

DATA = sample("test").take(120)
MODELS = {f"t/{k}": tiny.classifier(k) for k in range(2)}
SMALL = {"object_store_memory": 100 << 20, "num_cpus": 1}


@pytest.fixture(autouse=True)
def _never_hangs():
    def stop(*_: object) -> None:
        raise TimeoutError("the test took too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(180)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    try:
        made.add_node(**SMALL)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def tables(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.parquet"))}


def validation() -> Images:
    """Images of which the network of t/0 is right about two in three, so that there is a best temperature."""
    images = sample("validation").take(100)
    with torch.no_grad():
        predicted = MODELS["t/0"](images.images).argmax(1)
    return replace(images, labels=torch.where(torch.arange(100) % 3 == 0, images.labels, predicted))


def test_values_are_those_of_one_process(cluster, tmp_path):
    plan = Plan(
        models=("t/0",),
        methods=("vanilla", "temperature"),
        strategies=("train", "batch[eps=tuned]", "ema", "population"),
        shifts=("clean", "fog", "mixed-5"),
        severities=(3,),
        batch_sizes=(50,),
        orders=("dirichlet:0.5",),
        seeds=(0, 1),
    )
    given = {"data": DATA, "validation": validation(), "models": MODELS}
    evaluate(plan, tmp_path / "one", **given)
    told = []
    with RayEngine(cluster.address) as engine:
        assert engine.device == "cpu"
        results = evaluate(
            plan, tmp_path / "ray", engine=engine, **given, progress=lambda done, total, _: told.append((done, total))
        )
    assert tables(tmp_path / "ray") == tables(tmp_path / "one")
    assert told == [(done, told[-1][1]) for done in range(told[-1][1] + 1)]
    assert results.card["hardware"]["engine"] == "ray"
    assert "cpu" in results.card["hardware"]
    assert ray.is_initialized()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at where memory lies in /proc")
def test_data_lies_in_the_object_store_and_models_come_from_it_when_they_are_needed(cluster):
    job = Job(Plan(list(MODELS), shifts=("clean",)), data=DATA, models=MODELS)

    def look(cargo):
        first = cargo.data.images.data_ptr()
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        spans = {tuple(int(end, 16) for end in span.split("-")): rest for span, *rest in maps}
        (place,) = [" ".join(rest) for (low, high), rest in spans.items() if low <= first < high]
        kinds = [type(reference).__name__ for reference in cargo.models.values()]
        return place, kinds, cargo.data.sums, cargo.open("cpu").shelf.original("t/1").state_dict()

    place, kinds, sums, state = ray.get(ray.remote(look).options(num_cpus=1).remote(put_payload(job)))
    assert "plasma" in place
    assert kinds == ["ObjectRef"] * 2
    assert sums == DATA.sums
    for name, tensor in MODELS["t/1"].state_dict().items():
        assert torch.equal(state[name], tensor)


def test_a_node_and_a_worker_that_are_lost_leave_no_trace(cluster, tmp_path):
    plan = Plan("gated", shifts=("clean", "contrast", "fog", "brightness"), batch_sizes=(40,))
    evaluate(plan, tmp_path / "one", data=DATA, models={"gated": tiny.classifier()})
    seen = tmp_path / "seen"
    seen.mkdir()
    opened = tmp_path / "opened"
    head, other = cluster.head_node.node_id, next(iter(cluster.worker_nodes))
    told = []

    def strike(done: int, total: int, _: str) -> None:
        told.append((done, total))
        if done == 1:
            cluster.remove_node(other, allow_graceful=False)
        if done == 3:
            (process,) = [path.name.partition("-")[2] for path in seen.glob(f"{head}-*")]
            opened.touch()
            os.kill(int(process), signal.SIGKILL)

    three_units = 3 * 3  # of three batches each; every strategy has a copy of the gate
    try:
        with RayEngine(cluster.address) as engine:
            models = {"gated": behind(Gate(seen, nodes=2, most=three_units, opened=opened))}
            evaluate(plan, tmp_path / "ray", engine=engine, data=DATA, models=models, progress=strike)
    finally:
        if not cluster.worker_nodes:
            cluster.add_node(**SMALL)
    assert tables(tmp_path / "ray") == tables(tmp_path / "one")
    assert told == [(done, 16) for done in range(17)]
    assert len(list(seen.iterdir())) >= 3
    assert len(list(seen.glob(f"{head}-*"))) == 2


def test_a_unit_that_takes_its_workers_with_it_is_named(cluster, tmp_path):
    plan = Plan("fatal", shifts=("contrast",), severities=(4,), batch_sizes=(40,))
    with RayEngine(cluster.address, retries=1) as engine, pytest.raises(EvaluationError) as raised:
        evaluate(plan, tmp_path, engine=engine, data=DATA, models={"fatal": behind(Fatal())})
    assert "contrast at severity 4 was lost 2 times with its worker" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_a_unit_cannot_compute_is_told_as_in_one_process(cluster, tmp_path):
    plan, models = Plan("broken", shifts=("clean",), batch_sizes=(40,)), {"broken": tiny.broken()}
    with pytest.raises(EvaluationError) as here:
        evaluate(plan, tmp_path / "one", data=DATA, models=models)
    with RayEngine(cluster.address) as engine, pytest.raises(EvaluationError) as there:
        evaluate(plan, tmp_path / "ray", engine=engine, data=DATA, models=models)
    assert str(there.value) == str(here.value)


@pytest.mark.parametrize(
    ("given", "needed"), [({"device": "cuda"}, "1 GPU"), ({"cpus_per_worker": 64, "device": "cpu"}, "64 CPU")]
)
def test_a_cluster_without_room_for_a_worker_is_refused(cluster, tmp_path, given, needed):
    plan = Plan("t/0", shifts=("clean",))
    with RayEngine(cluster.address, **given) as engine, pytest.raises(EvaluationError, match=f"no node with {needed}"):
        evaluate(plan, tmp_path, engine=engine, data=DATA, models=MODELS)


def test_a_model_that_cannot_travel_is_named(cluster, tmp_path):
    model = tiny.classifier()
    model.lock = __import__("threading").Lock()
    with RayEngine(cluster.address) as engine, pytest.raises(EvaluationError, match="t/0 cannot be sent"):
        evaluate(Plan("t/0", shifts=("clean",)), tmp_path, engine=engine, data=DATA, models={"t/0": model})


def test_workers_with_other_versions_are_refused():
    node, here = Node("a", "10.0.0.7", {}), versions()
    build = here["torch"].partition("+")[0] + "+cu126"
    _check_versions(node, Greeting({}, {**here, "torch": build}))
    with pytest.raises(EvaluationError, match=r"10\.0\.0\.7 has numpy 1\.0, but this machine has"):
        _check_versions(node, Greeting({}, {**here, "numpy": "1.0"}))
