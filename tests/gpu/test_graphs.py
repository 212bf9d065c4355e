"""The recorder of CUDA graphs, with a stand-in for CUDA; with the mark `gpu`, the real one."""

from __future__ import annotations

import pytest
import torch

from predbn.gpu import CudaGraphRecorder, is_recording
from predbn.gpu.graphs import WARM_UP

from .cuda_stand_in import Cuda, Stream


def test_graphs_of_a_recorder_share_its_stream_and_memory(monkeypatch):
    cuda, recorders = Cuda(monkeypatch), [CudaGraphRecorder(), CudaGraphRecorder(Stream())]
    x = torch.zeros(3)
    for recorder in recorders:
        for factor in (2, 3):
            replay, result = recorder.record(lambda factor=factor: x * factor)
            x.fill_(5)
            replay()
            assert torch.equal(result, torch.full((3,), 5.0 * factor))
            x.zero_()
    graphs = [graph for graph, _, _ in cuda.replays]
    for attribute in ("pool", "recorded_on"):
        first, second, third, fourth = (getattr(graph, attribute) for graph in graphs)
        assert first == second != third == fourth
    assert cuda.main not in [graph.recorded_on for graph in graphs]


def test_warming_up_comes_after_the_current_stream_which_then_waits_for_it(monkeypatch):
    cuda, stream = Cuda(monkeypatch), Stream()
    cuda.work("before")
    seen = []

    def run():
        seen.append((cuda.current, set(cuda.current.done)))
        cuda.work(f"call {len(seen)}")

    CudaGraphRecorder(stream).record(run)
    assert len(seen) == WARM_UP + 1
    assert all(current is stream and "before" in done for current, done in seen)
    assert cuda.current is cuda.main
    assert f"call {WARM_UP}" in cuda.main.done


def test_something_else_may_warm_up(monkeypatch):
    Cuda(monkeypatch)
    calls = []
    CudaGraphRecorder().record(lambda: calls.append("run"), lambda: calls.append("warm up"))
    assert calls == ["warm up"] * WARM_UP + ["run"]


@pytest.mark.parametrize("fails", ["warm up", "run", "recording"])
@pytest.mark.parametrize("is_caching", [True, False])
def test_an_error_leaves_nothing_behind(monkeypatch, fails, is_caching):
    cuda, calls = Cuda(monkeypatch, records=fails != "recording"), []

    def call(name):
        assert not torch.is_autocast_cache_enabled()
        calls.append(name)
        if name == fails:
            raise RuntimeError(f"the {name} failed")

    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(is_caching)
    try:
        with pytest.raises(RuntimeError, match=r"failed|operation not permitted"):
            CudaGraphRecorder().record(lambda: call("run"), lambda: call("warm up"))
        assert torch.is_autocast_cache_enabled() == is_caching
    finally:
        torch.set_autocast_cache_enabled(before)
    assert cuda.current is cuda.main
    assert calls[0] == "warm up"


def test_what_is_not_on_a_gpu_cannot_be_recorded():
    assert not CudaGraphRecorder().can_record((torch.ones(1),))
    assert not CudaGraphRecorder().can_record((1,))
    assert not is_recording()


@pytest.mark.gpu
def test_a_graph_on_a_gpu():
    recorder, x, layer = CudaGraphRecorder(), torch.zeros(4, 8, device="cuda"), torch.nn.Linear(8, 8).cuda()
    assert recorder.can_record((x,))
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.float16):
        replay, result = recorder.record(lambda: (layer(x), is_recording()))
        x.normal_()
        replay()
        torch.testing.assert_close(result[0], layer(x))
    assert result[1]
