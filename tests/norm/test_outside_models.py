"""Well-known architectures, built without pretrained weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import predbn

from .models import randomise

timm = pytest.importorskip("timm", reason="timm is not installed")

NAMES = ["resnet50", "densenet121", "efficientnet_b0", "mobilenetv3_large_100", "resnetv2_50"]


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_round_trip(name):
    model = randomise_gently(timm.create_model(name, num_classes=10)).eval()
    x = torch.randn(4, 3, 64, 64)
    plain, before = model(x), copy.deepcopy(model.state_dict())
    assert torch.equal(predbn.adapt(model, "train")(x), plain)

    predbn.adapt(model)
    twin = copy.deepcopy(predbn.restore(copy.deepcopy(model)))
    for layer in twin.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.train()
    expected = twin(x)
    torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())

    predbn.restore(model)
    assert torch.equal(model(x), plain)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def randomise_gently(model: nn.Module) -> nn.Module:
    """Statistics that are off, but keep the activations of fifty layers in range."""
    randomise(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.mul_(0.05)
            module.weight.data.fill_(1.0)
            module.bias.data.mul_(0.1)
    return model


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
@torch.no_grad()
def test_folded(name):
    model = randomise_gently(timm.create_model(name, num_classes=10)).eval()
    x = torch.randn(8, 3, 64, 64)
    predbn.adapt(model, "frozen")
    model(x)
    expected = model(x)
    folded = predbn.fold(model)
    assert not [m for m in folded.modules() if isinstance(m, nn.BatchNorm2d)]
    torch.testing.assert_close(folded(x), expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())
