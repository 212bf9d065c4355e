"""Hostile uses of a layer's parameters: writes that autograd does not see, subclasses with a call of their own."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import predbn

STRATEGIES = ["batch", "prior(N=4)", "ema", "auto(calibrated=False)"]


def half_layer() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(4)
    nn.init.uniform_(layer.weight, 0.5, 1.5)
    return layer.to(torch.bfloat16).eval()


def threes() -> Tensor:
    return torch.full((4,), 3.0, dtype=torch.bfloat16)


WRITES = {
    "fill": lambda layer: layer.weight.data.fill_(3.0),
    "copy": lambda layer: layer.weight.data.copy_(threes()),
    "assign": lambda layer: [setattr(layer.weight, "data", values) for values in (2 * threes(), threes())],
    "a NumPy view": lambda layer: layer.weight.detach().view(torch.int16).numpy().fill(threes().view(torch.int16)[0]),
    "a buffer": lambda layer: layer.running_mean.data.fill_(5.0),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("write", WRITES)
@torch.no_grad()
def test_every_write_to_a_half_precision_layer_is_seen(write, strategy):
    x = torch.randn(6, 4, 5, 5).to(torch.bfloat16)
    layer = predbn.adapt(nn.Sequential(half_layer()), strategy)
    layer(x)
    if strategy == "ema":
        predbn.reset(layer)
    WRITES[write](layer[0])
    fresh = predbn.adapt(nn.Sequential(half_layer()), strategy)
    WRITES[write](fresh[0])
    assert torch.equal(layer(x), fresh(x))
    unchanged = predbn.adapt(nn.Sequential(half_layer()), strategy)
    assert torch.equal(fresh(x), unchanged(x)) == (write == "a buffer" and strategy == "batch")


class OnePlusWeight(nn.BatchNorm2d):
    """Stores the weight minus one, as some code bases do."""

    def forward(self, input: Tensor) -> Tensor:
        training = self.training
        return F.batch_norm(
            input, self.running_mean, self.running_var, 1 + self.weight, self.bias, training, 0.1, self.eps
        )


class OwnAffine(nn.BatchNorm2d):
    """Normalises without an affine and applies its own."""

    def forward(self, input: Tensor) -> Tensor:
        y = F.batch_norm(input, self.running_mean, self.running_var, None, None, self.training, 0.1, self.eps)
        return y * self.weight[:, None, None] + self.bias[:, None, None]


class OwnEps(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.1, eps=0.5
        )


class Conditional(nn.BatchNorm2d):
    """Takes its affine as arguments, as conditional batch norm does."""

    def forward(self, features: Tensor, gamma: Tensor, *, beta: Tensor) -> Tensor:
        y = F.batch_norm(features, self.running_mean, self.running_var, None, None, self.training, 0.1, self.eps)
        return gamma * y + beta


def expected(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        (OnePlusWeight, lambda m, x: expected(x, 1 + m.weight, m.bias, m.eps)),
        (OwnAffine, lambda m, x: expected(x, m.weight, m.bias, m.eps)),
        (OwnEps, lambda m, x: expected(x, m.weight, m.bias, 0.5)),
    ],
)
@pytest.mark.parametrize("strategy", ["batch", "prior(N=0)", "ema(momentum=1)"])
@torch.no_grad()
def test_a_subclass_is_normalised_with_what_it_passes_itself(kind, reference, strategy):
    torch.manual_seed(0)
    layer = kind(4).eval()
    nn.init.uniform_(layer.weight, -1, 1)
    nn.init.normal_(layer.bias)
    x = torch.randn(6, 4, 5, 5)
    wanted = reference(layer, x)
    predbn.adapt(nn.Sequential(layer), strategy)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:an adapted model was called in training mode")
@torch.no_grad()
def test_a_subclass_with_other_arguments():
    torch.manual_seed(0)
    layer, x, gamma, beta = Conditional(4), torch.randn(6, 4, 5, 5), torch.randn(6, 4, 1, 1), torch.randn(6, 4, 1, 1)
    predbn.adapt(layer)
    layer.train()
    wanted = gamma * F.batch_norm(x, None, None, None, None, True, 0.0, layer.eps) + beta
    torch.testing.assert_close(layer(x, gamma, beta=beta), wanted)
    layer.eval()
    torch.testing.assert_close(layer(x, gamma, beta=beta), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer(gamma=gamma, features=x, beta=beta), wanted, rtol=1e-5, atol=1e-5)


@given(
    value=st.floats(-1e3, 1e3, width=32),
    memory_format=st.sampled_from([torch.contiguous_format, torch.channels_last]),
    strategy=st.sampled_from(["batch", "prior(N=0)", "ema(momentum=1.0)"]),
    affine=st.booleans(),
)
def test_a_dead_channel_without_eps_is_the_same_in_every_memory_format(value, memory_format, strategy, affine):
    x = torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    x[:, 2] = value
    layer = predbn.adapt(nn.Sequential(nn.BatchNorm2d(4, eps=0.0, affine=affine)).eval(), strategy)
    with torch.no_grad():
        y = layer(x.contiguous(memory_format=memory_format))
    assert torch.isfinite(y).all()
    assert torch.equal(y[:, 2], torch.zeros_like(y[:, 2]))


def test_without_affine_no_graph_is_kept():
    layer = predbn.adapt(nn.Sequential(nn.BatchNorm2d(4, affine=False)).eval(), "batch")
    x = torch.randn(6, 4, 5, 5, requires_grad=True)
    layer(x * 2).sum().backward()
    copied = copy.deepcopy(layer)
    assert torch.equal(copied(x), layer(x))


def test_a_layer_without_bias_in_half_precision():
    layer = nn.BatchNorm2d(4)
    layer.bias = None
    layer = layer.to(torch.bfloat16).eval()
    x = torch.randn(6, 4, 5, 5).to(torch.bfloat16)
    predbn.adapt(nn.Sequential(layer), "batch")
    wanted = F.batch_norm(x.float(), None, None, layer.weight.float(), None, True, 0.0, layer.eps)
    torch.testing.assert_close(layer(x).float(), wanted, rtol=2e-2, atol=2e-2)
