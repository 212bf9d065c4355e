import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from predbn.models.normalisation import BiasedConv2d, ScalarAffine, StandardisedConv2d, find_normalisation

EPS = 1e-3

REDUCED = {
    "batch": lambda x: x.permute(1, 0, 2, 3).reshape(x.shape[1], -1),
    "instance": lambda x: x.reshape(len(x), x.shape[1], -1),
    "layer": lambda x: x.reshape(len(x), -1),
    "group": lambda x: x.reshape(len(x), 2, -1),
}
BACK = {
    "batch": lambda y, x: y.reshape(x.shape[1], len(x), *x.shape[2:]).permute(1, 0, 2, 3),
    "instance": lambda y, x: y.reshape(x.shape),
    "layer": lambda y, x: y.reshape(x.shape),
    "group": lambda y, x: y.reshape(x.shape),
}


@pytest.mark.parametrize("name", REDUCED)
@torch.no_grad()
def test_the_closed_form(name):
    x = torch.randn(3, 4, 5, 5) * 2 + 1
    layer = find_normalisation(name).norm(4, EPS)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    rows = REDUCED[name](x.double())
    rows = (rows - rows.mean(-1, keepdim=True)) / (rows.var(-1, correction=0, keepdim=True) + EPS).sqrt()
    expected = BACK[name](rows, x) * layer.weight.view(-1, 1, 1) + layer.bias.view(-1, 1, 1)
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)


def standardised_by_hand(weight: np.ndarray) -> np.ndarray:
    """One filter after another, in double precision."""
    result = np.empty(weight.shape)
    for number, values in enumerate(weight.astype(np.float64)):
        result[number] = (values - values.mean()) / np.sqrt(values.var() + 1e-10)
    return result


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
@torch.no_grad()
def test_weight_standardisation(scale):
    conv = StandardisedConv2d(3, 5, 3, padding=1, bias=False)
    conv.weight.mul_(scale).add_(scale)
    x = torch.randn(2, 3, 6, 6)
    expected = F.conv2d(x.double(), torch.from_numpy(standardised_by_hand(conv.weight.numpy())), padding=1)
    torch.testing.assert_close(conv(x).double(), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_biased_convolution_shifts_its_input_and_not_the_border():
    conv = BiasedConv2d(2, 3, 3, padding=1, bias=False)
    x = torch.randn(2, 2, 4, 4)
    torch.testing.assert_close(conv(x), F.conv2d(x, conv.weight, padding=1))
    conv.shift.fill_(0.5)
    padded = F.pad(x + 0.5, (1, 1, 1, 1))
    torch.testing.assert_close(conv(x), F.conv2d(padded, conv.weight))


@torch.no_grad()
def test_scalar_affine():
    x = torch.randn(2, 3, 4, 4)
    layer, shift = ScalarAffine(), ScalarAffine(scaled=False)
    assert torch.equal(layer(x), x)
    assert torch.equal(shift(x), x)
    assert list(shift.state_dict()) == ["shift"]
    layer.scale.fill_(3)
    layer.shift.fill_(-1)
    torch.testing.assert_close(layer(x), 3 * x - 1)
