"""Adapted models with the kernels, against PyTorch alone."""

from __future__ import annotations

import copy
from functools import cache
from unittest.mock import patch

import pytest
import torch
from torch import nn

import predbn
from predbn.gpu.backend import TritonBackend
from predbn.norm import backend

IDS = [0, 1, 0, 2, 1, 1, 0, 2]


class TwoLayers(nn.Module):
    """A batch norm on maps and one on features: the interpreter takes a second for ten calls of a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.bn1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=1e-3)
        self.fc1, self.bn2, self.fc2 = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv(x))).mean((2, 3))
        return self.fc2(torch.relu(self.bn2(self.fc1(x))))


def images(count: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(count, 3, 6, 6, generator=torch.Generator().manual_seed(seed)) * (1 + shift) + shift


@cache
def calibrated() -> nn.Module:
    model = TwoLayers().train()
    with torch.no_grad():
        for seed in range(20):
            model(images(32, seed))
    with patch.dict(backend._backends, {"cpu": None}):  # the interpreter takes long
        return predbn.calibrate(model.eval(), list(images(96, 100).split(32)))


class CountingBackend(TritonBackend):
    """Notes for each call whether kernels were used."""

    def __init__(self):
        self.calls = []

    def moments(self, *arguments):
        result = super().moments(*arguments)
        self.calls.append(result is not None)
        return result

    def normalise(self, *arguments):
        result = super().normalise(*arguments)
        self.calls.append(result is not None)
        return result


def predict(device, strategy, options, ids=None):
    model = predbn.adapt(copy.deepcopy(calibrated()).to(device), strategy, **options)
    results = []
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        for seed in (5, 6) if "ema" in strategy or "stream" in strategy else (5,):
            x = images(8, seed, shift=0.5).to(device)
            if ids is None:
                results.append(model(x))
            else:
                with predbn.streams(model, ids):
                    results.append(model(x))
    return results


@pytest.mark.parametrize(
    ("strategy", "options", "ids"),
    [
        ("prior(N=4)", {"robust": True, "group": 4}, None),
        ("ema", {}, IDS),
        ("auto", {}, None),
        ("auto_stream", {}, IDS),
    ],
)
def test_predictions_are_those_of_pytorch_alone(device, monkeypatch, strategy, options, ids):
    counting = CountingBackend()
    monkeypatch.setitem(backend._backends, device.type, counting)
    with_kernels = predict(device, strategy, options, ids)
    assert counting.calls
    assert all(counting.calls)
    monkeypatch.setitem(backend._backends, device.type, None)
    for ours, expected in zip(with_kernels, predict(device, strategy, options, ids), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_gradients_of_parameters_flow_although_the_input_needs_none(device, monkeypatch):
    gradients, x = [], images(8, 1).to(device)
    for registered in (backend.backend_of(device.type), None):
        monkeypatch.setitem(backend._backends, device.type, registered)
        model = predbn.adapt(copy.deepcopy(calibrated()).to(device), "auto")
        model.requires_grad_(False).bn1.requires_grad_(True)
        with torch.backends.cudnn.flags(allow_tf32=False):
            model(x).square().sum().backward()
        gradients.append(model.bn1.weight.grad)
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-3)


def test_an_example_that_is_not_finite_changes_no_other_where_influence_is_bounded(device):
    model = predbn.adapt(copy.deepcopy(calibrated()).to(device), "auto")
    x, others = images(9, 1).to(device), torch.arange(9) != 4
    x[4, 0, 2, 2] = torch.nan
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        torch.testing.assert_close(model(x)[others], model(x[others]), atol=1e-4, rtol=1e-4)
