"""CUDA graphs on several streams, with a stand-in for CUDA; `test_gpu.py` has what only a GPU shows."""

import pytest
import torch

from predbn.data import sample
from predbn.evaluation import Plan, Setting, Split
from predbn.evaluation.cuda_graphs import _LARGE_PASS, GraphedFunction, GraphStream, GraphStreams
from predbn.evaluation.job import Job
from predbn.evaluation.units import Cell, SplitUnit

from ..gpu.cuda_stand_in import Cuda
from . import tiny

CPU = torch.device("cpu")
NAMES = [f"t/{k}" for k in range(3)]
STRATEGIES = [str(Setting.parse(name)) for name in ("train", "batch", "ema")]
CELLS = tuple(
    Cell(model, method, strategy, size)
    for model, method in (*((name, "vanilla") for name in NAMES), ("all", "ensemble"))
    for strategy in STRATEGIES
    for size in (20, 3)
)


def unit(split="fog"):
    return SplitUnit(Split(split, 3), "shuffled", 1, CELLS)


def job(streams=None):
    models = {name: tiny.classifier(k) for k, name in enumerate(NAMES)}
    made = Job(Plan(models=NAMES, strategies=STRATEGIES, images=50), "cpu", sample("test"), models=models)
    made.worker.members = {"all": NAMES}
    if streams is not None:
        made.cache.__dict__["graph_streams"] = GraphStreams(CPU, streams)
    return made


@pytest.mark.parametrize(("streams", "records"), [(1, True), (5, True), (2, False)])
def test_results_do_not_depend_on_streams_nor_on_recording(monkeypatch, streams, records):
    cuda, plain = Cuda(monkeypatch, records), job()
    graphed = job(streams)
    for split in ("fog", "snow"):
        found, expected = (each.worker.do(unit(split)).rows for each in (graphed, plain))
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.cell == theirs.cell
            assert ours.metrics == pytest.approx(theirs.metrics, abs=1e-6)
    assert bool(cuda.replays) == records
    assert cuda.current is cuda.main


def test_streams_wait_for_the_images_and_the_user_waits_for_the_streams(monkeypatch):
    cuda, graphed = Cuda(monkeypatch), job(3)
    graphed.worker.do(unit())
    before = len(cuda.replays)
    cuda.work("images")
    graphed.worker.do(unit("snow"))
    replays = cuda.replays[before:]
    assert len(replays) > 10
    assert all("images" in done for _, _, done in replays)
    assert set(range(before + 1, len(cuda.replays) + 1)) <= cuda.main.done
    # Results are used on the main stream, which the allocator has to know.
    assert set(cuda.used_on) == {cuda.main}


def test_graphs_that_share_memory_are_recorded_and_replayed_on_one_stream(monkeypatch):
    cuda, graphed = Cuda(monkeypatch), job(3)
    graphed.worker.do(unit())
    places = {(graph.pool, graph.recorded_on, stream) for graph, stream, _ in cuda.replays}
    assert len(places) == len({pool for pool, _, _ in places}) == len({stream for _, _, stream in places}) == 3
    assert all(recorded is replayed for _, recorded, replayed in places)


def test_an_error_on_a_stream_is_waited_for_too(monkeypatch):
    cuda = Cuda(monkeypatch)
    streams = GraphStreams(CPU, 2)

    def fail():
        cuda.work("before the error")
        raise ValueError("the error")

    with pytest.raises(ValueError, match="the error"), streams.running():
        streams.choose("a", 1).run(fail)
    assert cuda.current is cuda.main
    assert "before the error" in cuda.main.done


def test_streams_get_equally_many_of_every_kind(monkeypatch):
    Cuda(monkeypatch)
    streams = GraphStreams(CPU, 4)
    given = {"train": [], "batch": []}
    for _ in range(10):
        for kind, places in given.items():
            places.append(streams.choose(kind, 1000))
    for places in given.values():
        assert sorted(map(places.count, streams._streams)) == [2, 2, 3, 3]
    assert {sum(places.count(each) for places in given.values()) for each in streams._streams} == {5}


def test_large_passes_are_on_one_stream(monkeypatch):
    Cuda(monkeypatch)
    streams = GraphStreams(CPU, 4)
    assert len({streams.choose("train", _LARGE_PASS) for _ in range(8)}) == 1


def test_a_new_batch_at_the_address_of_an_old_one_is_copied(monkeypatch):
    """A slice is freed after its call, and the next one may be at the same address."""
    Cuda(monkeypatch)
    graphed = GraphedFunction(lambda images: images.float().sum((1, 2, 3)), GraphStream(CPU))
    images = torch.arange(40, dtype=torch.uint8).view(10, 1, 2, 2)
    for start in range(8):
        assert torch.equal(graphed(images[start : start + 3]), images[start : start + 3].float().sum((1, 2, 3)))
