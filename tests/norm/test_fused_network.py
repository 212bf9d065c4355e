"""`predbn.compile`: the fused network against the model itself."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import predbn

from ..models.kernels.conftest import INTERPRETED
from .models import randomise

needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted.py runs this")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2, self.act = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.conv3, self.bn3 = nn.Conv2d(width, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width)
        self.shortcut = nn.Sequential(nn.Conv2d(channels, 2 * width, 1, stride, bias=False), nn.BatchNorm2d(2 * width))

    def forward(self, x):
        y = self.act(self.bn1(self.conv1(x)))
        y = self.act(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.act(y)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, bias=False)
        self.layer1 = nn.Sequential(Bottleneck(16, 8, 2))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.layer1(self.stem(x)).mean((2, 3)))


def images(count: int, seed: int = 0, dtype: torch.dtype = torch.float16):
    x = torch.randn(count, 3, 9, 9, generator=torch.Generator().manual_seed(seed))
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def adapted(strategy: str, dtype: torch.dtype = torch.float16):
    torch.manual_seed(0)
    model = randomise(Net()).eval()
    if strategy.startswith("auto"):
        model = predbn.calibrate(model, [images(32, seed, torch.float32) for seed in range(3)])
    model = model.to(dtype=dtype, memory_format=torch.channels_last)
    return predbn.adapt(model, strategy)


@pytest.fixture(autouse=True)
def _forget_graphs():
    torch._dynamo.reset()
    counters.clear()


@needs_interpreter
@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "auto(passes=1)"])
def test_a_fused_network_predicts_what_the_model_does(strategy):
    model, own = adapted(strategy), adapted(strategy)
    fused = predbn.compile(own, backend="eager", dynamic=True, fullgraph=True)
    with torch.inference_mode():
        for count in (4, 2):  # 3 would be the same symbol as the channels
            x = images(count, seed=count)
            torch.testing.assert_close(fused(x), model(x), rtol=5e-3, atol=5e-3)
    assert counters["stats"]["unique_graphs"] == 1
    text = {layer.name: layer.fused for layer in predbn.describe(fused)}
    is_not = "the convolution is 3×3"
    assert text == {
        "layer1.0.bn1": f"statistics (normalisation is not: {is_not})",
        "layer1.0.bn2": f"normalisation (statistics are not: {is_not})",
        "layer1.0.bn3": "statistics (normalisation is not: no convolution follows alone)",
        "layer1.0.shortcut.1": "statistics (normalisation is not: no convolution follows alone)",
    }
    assert "fused" in str(predbn.describe(fused)).splitlines()[0]


@needs_interpreter
def test_separate_kernels_are_described_as_such(monkeypatch):
    from predbn.norm.gpu.conv_choice import FORCED

    monkeypatch.setattr(FORCED, "way", "separate")
    model = adapted("batch")
    fused = predbn.compile(model, backend="eager")
    assert {layer.fused for layer in predbn.describe(fused)} == {
        "no: not compiled yet, or its strategy does not look at the batch"
    }
    with torch.inference_mode():
        torch.testing.assert_close(fused(images(5)), model(images(5)), rtol=5e-3, atol=5e-3)
    texts = [layer.fused for layer in predbn.describe(fused)]
    assert texts == ["no: separate kernels are faster", "no: the convolution is 3×3"] + [texts[0]] * 2


def wide(model):
    return model.float()


def contiguous(model):
    return model.to(memory_format=torch.contiguous_format)


def with_bias(model):
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
            layer.bias = nn.Parameter(torch.zeros_like(layer.weight[:, 0, 0, 0]))
    return model


@needs_interpreter
@pytest.mark.parametrize(
    ("change", "reason"),
    [(wide, "half precision"), (contiguous, "not in channels_last"), (with_bias, "has a bias")],
)
def test_what_is_not_supported_stays_as_it_is(change, reason):
    model = change(adapted("batch"))
    x = images(5).to(model.fc.weight.dtype)
    x = x.contiguous() if change is contiguous else x
    fused = predbn.compile(model, backend="eager")
    with torch.inference_mode():
        torch.testing.assert_close(fused(x), model(x), rtol=5e-3, atol=5e-3)
    texts = [layer.fused for layer in predbn.describe(fused)]
    assert all(text.startswith("no: ") for text in texts)
    assert sum(reason in text for text in texts) == 3


@needs_interpreter
def test_gradients_are_those_of_the_model():
    grads = []
    for compiled in (False, True):
        model = adapted("batch", torch.bfloat16)
        call = predbn.compile(model, backend="eager") if compiled else model
        call(images(5, dtype=torch.bfloat16)).float().square().sum().backward()
        grads.append(model.layer1[0].conv1.weight.grad)
    torch.testing.assert_close(*grads, rtol=5e-2, atol=5e-2)


def test_on_a_cpu_nothing_is_fused_and_the_model_is_as_it_was():
    model = adapted("batch", torch.float32)
    x = images(5, dtype=torch.float32)
    fused = predbn.compile(model, backend="eager")
    with torch.inference_mode():
        torch.testing.assert_close(fused(x), model(x))
        torch.testing.assert_close(predbn.compile(model, fuse=False, backend="eager")(x), model(x))
    assert all(layer.fused.startswith("no: ") for layer in predbn.describe(fused))
    assert all(layer.fused is None for layer in predbn.describe(model))


def test_what_is_no_model_is_refused():
    with pytest.raises(predbn.AdaptationError, match="got function; compile the model itself"):
        predbn.compile(images)


def resnet50(strategy: str):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    torch.manual_seed(0)
    model = timm.create_model("resnet50", num_classes=10).eval().half().cuda().to(memory_format=torch.channels_last)
    x = torch.randn(16, 3, 128, 128, device="cuda").half().contiguous(memory_format=torch.channels_last)
    if strategy.startswith("auto"):
        model = predbn.calibrate(model, [x.roll(1, 2), x.flip(3)])
    return predbn.adapt(model, strategy), x


def distance(a, b) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


@needs_gpu
@pytest.mark.parametrize("strategy", ["batch", "prior", "auto(passes=1)"])
def test_a_fused_resnet50_is_as_near_to_double_precision_as_the_model(strategy, monkeypatch):
    from predbn.norm.gpu.conv_choice import FORCED

    monkeypatch.setattr(FORCED, "way", "fused")
    model, x = resnet50(strategy)
    exact, fused = copy.deepcopy(model).double(), predbn.compile(model, dynamic=True, fullgraph=True)
    with torch.inference_mode():
        for count in (16, 11):
            part = x[:count].clone()  # for a view of all images torch.compile makes a graph of its own
            expected = exact(part.double())
            assert distance(fused(part), expected) < 2 * distance(model(part), expected) + 2e-3
    assert counters["stats"]["unique_graphs"] == 1
    texts = [layer.fused.split("(")[0] for layer in predbn.describe(fused)]
    assert sum("statistics" in text for text in texts) == 36
    assert sum("normalisation" in text for text in texts) == 16


@needs_gpu
def test_a_fused_resnet50_with_cuda_graphs_and_the_fastest_ways():
    model, x = resnet50("batch")
    fused = predbn.compile(model, mode="reduce-overhead")
    with torch.inference_mode():
        expected = model(x)
        for _ in range(4):
            assert distance(fused(x).clone(), expected) < 5e-2
    assert not any("not called" in layer.fused for layer in predbn.describe(fused))


@needs_gpu
@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "auto(passes=1)"])
def test_a_small_fused_network_on_a_gpu(strategy):
    model = adapted(strategy).cuda()
    x = images(12).cuda()
    with torch.inference_mode():
        expected = model(x)
        assert distance(predbn.compile(model)(x), expected) < 1e-2
