from __future__ import annotations

import copy
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from predbn.models import resnet20
from predbn.models.kernels import accelerate, accelerate_prediction
from predbn.models.normalisation import NORMALISATIONS
from predbn.models.resnet import ResNet

from .conftest import INTERPRETED

module = import_module("predbn.models.kernels.accelerate")
on_cpu = pytest.mark.skipif(INTERPRETED, reason="needs no interpreter")


@on_cpu
@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_the_same_keys_and_on_a_cpu_the_same_outputs(norm):
    pytest.importorskip("triton", reason="Triton is not installed")
    plain = resnet20(norm)
    fast = accelerate(copy.deepcopy(plain))
    assert list(fast.state_dict()) == list(plain.state_dict())
    assert list(dict(fast.named_parameters())) == list(dict(plain.named_parameters()))
    x = torch.randn(2, 3, 16, 16)
    for mode in (True, False):
        assert torch.equal(fast.train(mode)(x), plain.train(mode)(x))
    assert all(torch.equal(t, fast.state_dict()[name]) for name, t in plain.state_dict().items())


@on_cpu
def test_a_copy_is_a_network_of_its_own():
    pytest.importorskip("triton", reason="Triton is not installed")
    fast = accelerate(resnet20("layer"))
    other = copy.deepcopy(fast)
    assert other.norm1.fused.__self__ is other.norm1
    assert other.layer1[0].conv1._conv_forward.__self__ is other.layer1[0].conv1


@on_cpu
def test_which_layers_are_replaced():
    pytest.importorskip("triton", reason="Triton is not installed")
    network = accelerate(resnet20("layer"))
    fast = [name for name, layer in network.named_modules() if "_conv_forward" in layer.__dict__]
    strided = {"layer2.0.conv1", "layer3.0.conv1"}
    assert set(fast) == {f"layer{s}.{b}.conv{c}" for s in (1, 2, 3) for b in (0, 1, 2) for c in (1, 2)} - strided
    assert all(hasattr(m, "fused") for m in network.modules() if isinstance(m, nn.GroupNorm))


@on_cpu
@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(16),
        nn.InstanceNorm2d(16),
        nn.InstanceNorm2d(16, affine=True, track_running_stats=True),
        nn.GroupNorm(2, 16, affine=False),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.Conv2d(16, 16, 3, padding=1, groups=2, bias=False),
        nn.Conv2d(16, 48, 3, padding=1, bias=False),
        nn.Conv2d(16, 16, 5, padding=2, bias=False),
    ],
    ids=str,
)
def test_unsupported_layers_are_not_changed(layer):
    before = dict(layer.__dict__)
    assert accelerate(layer).__dict__ == before


@on_cpu
def test_without_triton_nothing_is_changed(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    network = accelerate(resnet20("layer"))
    assert not any("fused" in m.__dict__ or "_conv_forward" in m.__dict__ for m in network.modules())


@pytest.mark.parametrize("norm", ["batch", "group"] if INTERPRETED else NORMALISATIONS)
def test_a_step_of_the_whole_network(bench, norm, monkeypatch):
    """A network with its kernels in use, where the interpreter runs them too, against the plain one."""
    if INTERPRETED:
        monkeypatch.setattr(module, "_is_supported_input", lambda x: x.shape[1] in (16, 32, 64))
    torch.manual_seed(0)
    plain = ResNet((1, 1, 1), (16, 32, 64), classes=10, norm=norm, eps=1e-3)
    plain = plain.to(bench.device, memory_format=torch.channels_last)
    fast = accelerate(copy.deepcopy(plain))
    x = torch.randn(4, 3, 8, 4, device=bench.device).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(4, device=bench.device)

    def gradient(network, half):
        network.zero_grad()
        with torch.autocast(bench.device, torch.bfloat16, enabled=half):
            logits = network(x)
        F.cross_entropy(logits.float(), labels).backward()
        return torch.cat([p.grad.flatten() for p in network.parameters()])

    exact = gradient(plain, half=False)
    away = [((gradient(network, half=not INTERPRETED) - exact).norm() / exact.norm()) for network in (plain, fast)]
    assert away[1] < (1e-3 if INTERPRETED else 2 * away[0])


@on_cpu
def test_which_layers_are_replaced_for_prediction():
    pytest.importorskip("triton", reason="Triton is not installed")
    network = accelerate_prediction(resnet20().eval())
    fast = {name for name, layer in network.named_modules() if "_conv_forward" in layer.__dict__}
    assert fast == {f"layer{s}.{b}.conv{c}" for s in (1, 2) for b in (0, 1, 2) for c in (1, 2)} - {"layer2.0.conv1"}
    assert all(hasattr(m, "fused") == isinstance(m, nn.BatchNorm2d) for m in network.modules())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(network(x), copy.deepcopy(network)(x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("images", [1, 7, 500])
def test_prediction_with_the_kernels_is_prediction_without(dtype, images):
    """As far from single precision as half precision is without them."""
    plain = resnet20().cuda().eval().to(memory_format=torch.channels_last)
    fast = accelerate_prediction(copy.deepcopy(plain))
    x = torch.randn(images, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        exact = plain(x)
        with torch.autocast("cuda", dtype):
            away = [(network(x).float() - exact).norm() / exact.norm() for network in (plain, fast)]
    assert away[1] < 2 * away[0] + 1e-6
