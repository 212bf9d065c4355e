"""Hostile models for `fold`: the folded model gives what the adapted one gives, or `fold` refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import predbn

from .models import images, net, randomise


def both(model: nn.Module, *inputs: Tensor, **options: Tensor) -> tuple[Tensor, Tensor]:
    """What the adapted and the folded model give; frozen after one batch."""
    predbn.adapt(model.eval(), "frozen")
    with torch.no_grad():
        model(*inputs, **options)
        folded = predbn.fold(model)
        return model(*inputs, **options), folded(*inputs, **options)


class OptionalArgument(nn.Module):
    """With a mask it goes another way through its layers than without."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        y = self.conv(x)
        if scale is not None:
            y = y * scale
        return self.bn(y)


def test_an_optional_argument_that_changes_the_path():
    model = randomise(OptionalArgument())
    wanted, found = both(model, images(4), torch.tensor(3.0))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


class SharedWeight(nn.Module):
    """The convolution's weight is also used by a functional call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) + F.conv2d(x, self.conv.weight)


def test_a_weight_that_is_also_used_functionally():
    wanted, found = both(randomise(SharedWeight()), images(4))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


class Tokens(nn.Module):
    """BatchNorm1d on [N, L, C] takes L for the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn = nn.Linear(5, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.linear(x))


def test_a_linear_layer_on_tokens():
    torch.manual_seed(0)
    wanted, found = both(randomise(Tokens()), torch.randn(6, 4, 5))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


class PlainList(nn.Module):
    """Its layers are also held in a plain list, which is what forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.layers = [self.conv, self.bn]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_layers_that_are_also_in_a_plain_list():
    wanted, found = both(randomise(PlainList()), images(4))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


class UnusedInEval(nn.Module):
    """An auxiliary head that is used in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.auxiliary = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.training:
            return self.bn(y) + self.auxiliary(y)
        return self.bn(y)


def test_layers_that_are_not_used_in_eval_mode():
    wanted, found = both(randomise(UnusedInEval()), images(4))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_it_says_how_many_layers_were_merged():
    model = predbn.adapt(net(), "frozen")
    with torch.no_grad():
        model(images(4))
    folded = predbn.fold(model)
    assert "3 of 3" in str(predbn.describe(folded)) or folded.predbn_fold.merged == 3


@pytest.mark.parametrize("affine", [True, False])
def test_after_a_pass_with_gradients(affine):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine)).eval()
    predbn.adapt(model, "frozen")
    model(images(4).requires_grad_()).sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(predbn.fold(model)(images(4)), model(images(4)), rtol=1e-4, atol=1e-4)
