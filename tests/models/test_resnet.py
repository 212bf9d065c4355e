"""The networks against torchvision's, and against the papers they come from. The tests of the zoo run them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from predbn.models import resnet20, resnet50
from predbn.models.resnet import Block

from .networks import scrambled

EPS = 1e-3
FILTERS_AND_LINEAR = 432 + 13_824 + 50_688 + 202_752 + 512 + 2_048 + 650
NORMALISED = 2 * (16 + 6 * 16 + 6 * 32 + 6 * 64 + 32 + 64)
SCALARS = 1 + 9 * 5 + 2


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
    F.cross_entropy(network(torch.randn(3, 3, 32, 32)), torch.arange(3)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
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
def test_outputs_kept_by_a_hook_are_not_overwritten():
    network = scrambled(resnet20())
    kept = []
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(lambda module, inputs, output: kept.append((output, output.clone())))
    network(torch.randn(2, 3, 32, 32))
    assert len(kept) == 21
    assert all(torch.equal(output, then) for output, then in kept)
