from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from predbn.models.layers import BiasedConv2d, ScalarAffine, StandardisedConv2d


def standardised_by_hand(weight: np.ndarray) -> np.ndarray:
    """One filter after another, in double precision."""
    result = np.empty(weight.shape)
    for place, values in enumerate(weight.astype(np.float64)):
        result[place] = (values - values.mean()) / np.sqrt(values.var() + 1e-10)
    return result


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
@torch.no_grad()
def test_weight_standardisation(scale):
    conv = StandardisedConv2d(3, 5, 3, padding=1, bias=False)
    conv.weight.mul_(scale).add_(scale)
    x = torch.randn(2, 3, 6, 6)
    wanted = F.conv2d(x.double(), torch.from_numpy(standardised_by_hand(conv.weight.numpy())), padding=1)
    torch.testing.assert_close(conv(x).double(), wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_weight_standardisation_keeps_bias_stride_and_dtype():
    conv = StandardisedConv2d(3, 5, 3, stride=2).bfloat16()
    y = conv(torch.randn(2, 3, 7, 7).bfloat16())
    assert (y.shape, y.dtype) == ((2, 5, 3, 3), torch.bfloat16)
    assert torch.equal(conv(torch.zeros(1, 3, 3, 3).bfloat16()).flatten(), conv.bias)


def test_a_standardised_filter_does_not_feel_its_own_size():
    conv = StandardisedConv2d(3, 4, 3, bias=False).double()
    conv(torch.randn(2, 3, 5, 5, dtype=torch.float64)).square().sum().backward()
    along = (conv.weight.grad * conv.weight).sum((1, 2, 3)).abs()
    across = conv.weight.grad.flatten(1).norm(dim=1) * conv.weight.detach().flatten(1).norm(dim=1)
    assert (along < 1e-5 * across).all()


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
