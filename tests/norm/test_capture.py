"""Captured models where there is nothing to capture; `test_gpu.py` has the graphs themselves."""

from __future__ import annotations

import copy

import pytest
import torch

import predbn

from .models import images, net


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
