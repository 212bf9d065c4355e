"""The networks against a slow, simple one, against torchvision's, and against the papers they come from."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from predbn.models import ModelError, resnet20, resnet50
from predbn.models.normalisation import NORMALISATIONS
from predbn.models.resnet import Block

from .networks import scrambled

EPS = 1e-3
FILTERS_AND_LINEAR = 432 + 13_824 + 50_688 + 202_752 + 512 + 2_048 + 650
NORMALISED = 2 * (16 + 6 * 16 + 6 * 32 + 6 * 64 + 32 + 64)
SCALARS = 1 + 9 * 5 + 2


class Reference:
    """ResNet-20 from a state dict, in double precision, written out."""

    def __init__(self, norm: str, network: nn.Module) -> None:
        self.norm = norm
        self.state = {name: tensor.double() for name, tensor in network.state_dict().items()}

    def convolve(self, x, name, stride):
        weight = self.state[f"{name}.weight"]
        if self.norm == "group":
            flat = weight.flatten(1)
            flat = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, correction=0, keepdim=True) + 1e-10).sqrt()
            weight = flat.view_as(weight)
        x = x + self.state.get(f"{name}.shift", 0.0)
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def normalise(self, x, name):
        if self.norm in ("fixup", "last"):
            return x * self.state.get(f"{name}.scale", 1.0) + self.state.get(f"{name}.shift", 0.0)
        if self.norm == "batch":
            mean, var = (self.state[f"{name}.running_{what}"].view(1, -1, 1, 1) for what in ("mean", "var"))
        else:
            groups = {"instance": x.shape[1], "layer": 1, "group": 2}[self.norm]
            rows = x.reshape(len(x), groups, -1)
            mean, var = (
                moment.repeat_interleave(x.shape[1] // groups, 1)[..., None]
                for moment in (rows.mean(2, keepdim=True)[..., 0], rows.var(2, correction=0))
            )
            mean, var = mean[..., None], var[..., None]
        weight, bias = (self.state[f"{name}.{what}"].view(1, -1, 1, 1) for what in ("weight", "bias"))
        return (x - mean) / (var + EPS).sqrt() * weight + bias

    def __call__(self, x):
        x = self.normalise(self.convolve(x.double(), "conv1", 1), "norm1").relu()
        for stage in (1, 2, 3):
            for position in (0, 1, 2):
                name = f"layer{stage}.{position}"
                stride = 2 if stage > 1 and position == 0 else 1
                branch = self.normalise(self.convolve(x, f"{name}.conv1", stride), f"{name}.norm1").relu()
                branch = self.normalise(self.convolve(branch, f"{name}.conv2", 1), f"{name}.norm2")
                if stride == 2:
                    x = self.normalise(self.convolve(x, f"{name}.downsample.0", 2), f"{name}.downsample.1")
                x = (x + branch).relu()
        x = x.mean((2, 3))
        if self.norm == "last":
            s = self.state
            x = (x - s["before_linear.running_mean"]) / (s["before_linear.running_var"] + EPS).sqrt()
            x = x * s["before_linear.weight"] + s["before_linear.bias"]
        return x @ self.state["fc.weight"].T + self.state["fc.bias"]


@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_resnet20_against_the_reference(norm):
    network = scrambled(resnet20(norm))
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        logits = network(x)
        torch.testing.assert_close(logits.double(), Reference(norm, network)(x), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(network.fc(network.embed(x)), logits)
    F.cross_entropy(network.train()(x), torch.arange(3)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@torch.no_grad()
def test_resnet50_is_torchvisions_with_the_stride_on_the_first_convolution():
    models = pytest.importorskip("torchvision", reason="torchvision is not installed").models
    theirs = models.resnet50().eval()
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = EPS
        if isinstance(module, models.resnet.Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
    ours = scrambled(resnet50())
    state = {name.replace(".norm", ".bn").replace("norm1", "bn1"): t for name, t in ours.state_dict().items()}
    theirs.load_state_dict(state)
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    assert sum(p.numel() for p in ours.parameters()) == 25_557_032


@pytest.mark.parametrize(
    ("norm", "extra"),
    [
        *((norm, NORMALISED) for norm in ("batch", "instance", "layer", "group")),
        ("fixup", SCALARS),
        ("last", SCALARS + 128),
    ],
)
def test_resnet20_has_twenty_weighted_layers_and_one_eps(norm, extra):
    network = resnet20(norm)
    assert sum(p.numel() for p in network.parameters()) == FILTERS_AND_LINEAR + extra
    weighted = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and "downsample" not in name
    ]
    assert len(weighted) == 20
    assert {module.eps for module in network.modules() if hasattr(module, "eps")} <= {1e-3}
    assert {m.eps for m in resnet20(norm, eps=1e-5).modules() if hasattr(m, "eps")} <= {1e-5}


@pytest.mark.parametrize("norm", ["fixup", "last"])
@torch.no_grad()
def test_fixup_begins_as_the_identity(norm):
    torch.manual_seed(3)
    network = resnet20(norm).eval()
    blocks = [module for module in network.modules() if isinstance(module, Block)]
    assert len(blocks) == 9
    for block in blocks:
        x = torch.randn(2, block.conv1.in_channels, 8, 8).relu()
        shortcut = x if block.downsample is None else block.downsample(x).relu()
        assert torch.equal(block(x), shortcut)
        he = (2 / (9 * block.conv1.out_channels)) ** 0.5
        assert block.conv1.weight.std() == pytest.approx(he * 9**-0.5, rel=0.1)
    assert network(torch.randn(4, 3, 32, 32)).any() == (norm == "last")


@torch.no_grad()
def test_other_networks_begin_with_hes_variance():
    network = resnet20()
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 2000:
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.std() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)


@torch.no_grad()
def test_outputs_kept_by_a_hook_are_not_overwritten():
    network = scrambled(resnet20())
    kept = []
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(lambda module, inputs, output: kept.append((output, output.clone())))
    network(torch.randn(2, 3, 32, 32))
    assert len(kept) == 21
    assert all(torch.equal(output, then) for output, then in kept)


def test_an_unknown_normalisation():
    with pytest.raises(ModelError, match="no normalisation 'none'"):
        resnet20("none")
