"""Captured models without a GPU: called as they are, or with graphs that run the model again.

`test_capture_streams.py` has rows of several streams, `test_gpu.py` has real graphs.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import predbn

from .models import images, net
from .standin_recorder import recorder

__all__ = ["recorder"]


@pytest.mark.parametrize("strategy", ["batch", "ema", "auto", "auto_stream"])
def test_on_a_cpu_the_model_is_called_as_it_is(strategy):
    model = predbn.calibrate(net(), list(images(96).split(32)))
    expected, own = (predbn.adapt(copy.deepcopy(model), strategy) for _ in range(2))
    captured = predbn.capture(own)
    with torch.inference_mode():
        for seed in range(5):
            assert torch.equal(captured(images(12, seed=seed)), expected(images(12, seed=seed)))
    ours, theirs = (predbn.state_dict(model)["streams"] for model in (own, expected))
    assert ours.keys() == theirs.keys()
    assert not captured._graphs


def test_gradients_flow_through_a_captured_model():
    model = predbn.capture(predbn.adapt(net(), "batch"))
    x = images(8).requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None
    assert set(model.state_dict()) == {f"model.{name}" for name in net().state_dict()}


def test_a_plain_model_can_be_captured():
    model = net()
    with torch.inference_mode():
        assert torch.equal(predbn.capture(model)(images(8)), model(images(8)))


@pytest.mark.parametrize("graphs", [0, -1, True, 2.5])
def test_a_number_of_graphs_that_is_none_is_refused(graphs):
    with pytest.raises(predbn.AdaptationError, match="how many shapes of inputs"):
        predbn.capture(net(), graphs)


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("strategy", ["batch", "ema", "auto", "auto_stream", "frozen"])
def test_streams_resets_and_other_strategies_between_replays(strategy):
    model = predbn.calibrate(net(), list(images(96).split(32)))
    expected, own = (predbn.adapt(copy.deepcopy(model), strategy) for _ in range(2))
    captured = predbn.capture(own, graphs=2)
    with torch.inference_mode():
        for seed in range(30):
            x = images(12 if seed % 7 else 10, seed=seed, shift=seed / 10)
            name = "a" if seed % 5 < 3 else "b"
            for each in (expected, own) if seed == 14 else ():
                predbn.reset(each)
            for each in (expected, own) if seed == 20 else ():
                predbn.adapt(each, "prior")
            with predbn.stream(expected, name), predbn.stream(own, name):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-6, rtol=1e-6)
            assert len(captured._graphs) <= 2
    assert captured.replays > 10


@pytest.mark.usefixtures("recorder")
def test_a_saved_state_does_not_change_when_a_graph_is_replayed():
    model = predbn.adapt(net(), "ema")
    captured = predbn.capture(model)
    with torch.inference_mode():
        for seed in range(6):
            captured(images(12, seed=seed))
        saved = predbn.state_dict(model)["streams"]["default"]["layers"]["bn1"]["mean"]
        before = saved.clone()
        captured(images(12, seed=9, shift=3.0))
    assert torch.equal(saved, before)


@pytest.mark.usefixtures("recorder")
def test_a_plain_model_that_is_adapted_later():
    model = net()
    captured, x = predbn.capture(model), images(8)
    with torch.inference_mode():
        for _ in range(4):
            captured(x)
        predbn.adapt(model, "batch")
        assert torch.equal(captured(x), model(x))
        for _ in range(4):
            captured(x)
        predbn.restore(model)
        assert torch.equal(captured(x), net()(x))


def test_a_copy_of_a_captured_model_has_no_graphs_of_the_original():
    captured = predbn.capture(predbn.adapt(net(), "ema"))
    again = copy.deepcopy(captured)
    with torch.inference_mode():
        assert torch.equal(again(images(8)), captured(images(8)))
    assert again._lock is not captured._lock


def test_a_part_of_the_model_between_replays_of_two_streams(recorder):
    """What a stream keeps after it must not be memory of the graph, which the other stream changes."""

    def states_of(is_captured: bool):
        torch.manual_seed(0)
        layers = (nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4)) for channels in (3, 4))
        model = predbn.adapt(nn.Sequential(*layers).eval(), "ema(momentum=0.5)")
        fast = predbn.capture(model) if is_captured else model
        batches = torch.randn(10, 4, 3, 8, 8, generator=torch.Generator().manual_seed(1)) + torch.arange(10).view(
            -1, 1, 1, 1, 1
        )
        with torch.no_grad():
            for batch, name in zip(batches, "aaaabba", strict=False):
                with predbn.stream(fast, name):
                    fast(batch)
            with predbn.stream(fast, "a"):
                model[0](batches[7])
            for batch in batches[8:]:
                with predbn.stream(fast, "b"):
                    fast(batch)
        assert not is_captured or fast.replays > 2
        return predbn.state_dict(model)["streams"]

    expected, found = states_of(False), states_of(True)
    for name in "ab":
        for layer, state in expected[name]["layers"].items():
            torch.testing.assert_close(found[name]["layers"][layer]["mean"], state["mean"])
