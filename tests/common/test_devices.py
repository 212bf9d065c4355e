"""Devices by name."""

from __future__ import annotations

import pytest
import torch

from predbn.common import DeviceError, parse_device


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("name", "device"), [("auto", "cuda"), ("cpu", "cpu"), ("cuda", "cuda"), ("cuda:1", "cuda:1")])
def test_with_gpus(name, device):
    assert parse_device(name) == torch.device(device)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_too_many():
    with pytest.raises(DeviceError, match="PyTorch finds no cuda:2 here: use cpu or auto"):
        parse_device("cuda:2")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu():
    assert parse_device("auto") == parse_device("cpu") == torch.device("cpu")
    with pytest.raises(DeviceError, match="PyTorch finds no cuda here"):
        parse_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "meta", "cpu:1", "cuda:x", "cuda:-1", "CUDA", ""])
def test_unknown_names(name):
    with pytest.raises(DeviceError, match=f"there is no device '{name}': use cpu, cuda, cuda:1 or auto"):
        parse_device(name)
