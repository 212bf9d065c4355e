"""A folded model predicts what the adapted one does with its current statistics."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import predbn

from .models import images, net, randomise

FIXED = ["train", "frozen", "ema(momentum=0.3, start='source')", "population"]


def adapt_and_predict(model, strategy, x):
    """Adapt, let the statistics form, and return what the model predicts if they no longer change."""
    if strategy == "population":
        return predbn.adapt(model, strategy, loader=[x])(x)
    predbn.adapt(model, strategy)
    if strategy.startswith("ema"):
        model(x)
        state = predbn.state_dict(model)
        constant = predbn.adapt(copy.deepcopy(model), predbn.Ema(momentum=0.0))
        state["strategies"] = dict.fromkeys(state["strategies"], "ema(momentum=0.0, start='source')")
        return predbn.load_state_dict(constant, state)(x)
    model(x)
    return model(x)


@pytest.mark.parametrize("strategy", FIXED)
@pytest.mark.parametrize("eps", [None, 0.1])
@torch.no_grad()
def test_folded_equals_adapted(strategy, eps):
    model, x = net(), images(shift=1.0)
    expected = adapt_and_predict(model, strategy, x)
    if eps is not None:
        for layer in (model.bn1, model.bn2, model.bn3):
            layer._predbn.shared.eps = eps
        expected = model(x) if not strategy.startswith("ema") else None
    before = copy.deepcopy(model.state_dict())
    folded = predbn.fold(model)
    assert not [m for m in folded.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if expected is not None:
        torch.testing.assert_close(folded(x), expected, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not folded.training


@torch.no_grad()
def test_the_statistics_of_one_stream():
    model = predbn.adapt(net(), "frozen")
    a, b = images(), images(seed=9, shift=3.0)
    model(a)
    with predbn.stream(model, "b"):
        model(b)
        expected = model(a)
    torch.testing.assert_close(predbn.fold(model, stream="b")(a), expected, rtol=1e-5, atol=1e-5)


class Awkward(nn.Module):
    """What must not be merged: a value with two readers, a layer used twice, a batch norm that comes first, a
    convolution with a hook; and what can be merged: transposed and grouped convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(3)
        self.two_readers, self.bn_a = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.used_twice, self.bn_b, self.bn_c = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.hooked, self.bn_d = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.transposed, self.bn_e = nn.ConvTranspose2d(4, 6, 2), nn.BatchNorm2d(6, affine=False)
        self.grouped, self.bn_f = nn.Conv2d(6, 6, 3, groups=3, padding=1), nn.BatchNorm2d(6)
        self.grouped_t, self.bn_g = nn.ConvTranspose2d(6, 6, 2, groups=2), nn.BatchNorm2d(6)

    def forward(self, x):
        x = self.two_readers(self.first(x))
        x = x + self.bn_a(x)
        x = self.bn_c(self.used_twice(torch.relu(self.bn_b(self.used_twice(x)))))
        x = self.bn_d(self.hooked(x))
        x = self.bn_f(self.grouped(torch.relu(self.bn_e(self.transposed(x)))))
        return self.bn_g(self.grouped_t(x))


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return self.bn(self.conv(x)) if x.sum() > 0 else self.bn(self.conv(-x))


@pytest.mark.parametrize(("make", "left"), [(Awkward, 6), (Untraceable, 1)])
@torch.no_grad()
def test_layers_that_cannot_be_merged_stay(make, left):
    torch.manual_seed(0)
    model = randomise(make()).eval()
    if make is Awkward:
        model.hooked.register_forward_hook(lambda *_: None)
    x = images(shift=1.0)
    expected = adapt_and_predict(model, "frozen", x)
    folded = predbn.fold(model)
    torch.testing.assert_close(folded(x), expected, rtol=1e-4, atol=1e-5)
    assert len([m for m in folded.modules() if type(m) is nn.BatchNorm2d]) == left


@torch.no_grad()
def test_memory_format_and_precision_stay():
    model = net().to(memory_format=torch.channels_last).to(torch.bfloat16)
    folded = predbn.fold(predbn.adapt(model, "train"))
    assert folded.conv1.weight.dtype == torch.bfloat16
    assert folded.conv1.weight.is_contiguous(memory_format=torch.channels_last)


def test_nothing_to_fold():
    with pytest.raises(predbn.AdaptationError, match="'batch' computes statistics from every batch"):
        predbn.fold(predbn.adapt(net()))
    with pytest.raises(predbn.AdaptationError, match="'bn1' has no statistics yet under strategy 'frozen"):
        predbn.fold(predbn.adapt(net(), "frozen"))
    with pytest.raises(predbn.AdaptationError, match="no stream 'x'"):
        predbn.fold(predbn.adapt(net(), "ema"), stream="x")


class OptionalArgument(nn.Module):
    """With a scale it goes another way through its layers than without."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        y = self.conv(x)
        return self.bn(y if scale is None else y * scale)


class SharedWeight(nn.Module):
    """The convolution's weight is also used by a functional call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) + F.conv2d(x, self.conv.weight)


class Tokens(nn.Module):
    """BatchNorm1d on [N, L, C] takes L for the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn = nn.Linear(5, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.linear(x))


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


class UnusedInEval(nn.Module):
    """An auxiliary head that is used in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.auxiliary = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.bn(y) + self.auxiliary(y) if self.training else self.bn(y)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (OptionalArgument, (images(4), torch.tensor(3.0))),
        (SharedWeight, (images(4),)),
        (Tokens, (torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0)),)),
        (PlainList, (images(4),)),
        (UnusedInEval, (images(4),)),
    ],
)
@torch.no_grad()
def test_unusual_models(model, inputs):
    model = predbn.adapt(randomise(model()).eval(), "frozen")
    model(*inputs)
    torch.testing.assert_close(predbn.fold(model)(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("affine", [True, False])
def test_after_a_pass_with_gradients(affine):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine)).eval()
    predbn.adapt(model, "frozen")
    model(images(4).requires_grad_()).sum().backward()
    folded = predbn.fold(model)
    assert folded.predbn_fold.merged == 1
    assert "1 of 1" in str(predbn.describe(folded))
    with torch.no_grad():
        torch.testing.assert_close(folded(images(4)), model(images(4)), rtol=1e-4, atol=1e-4)
