"""A layer with its shortcut and ReLU in one kernel, and kernels for few channels, against plain PyTorch.

Without a GPU, `tests/models/kernels/test_interpreted.py` runs them.
"""

from __future__ import annotations

import copy
import warnings
from importlib import import_module
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import predbn
from predbn.models import resnet20
from predbn.models.kernels import accelerate_prediction
from predbn.norm import kernels
from predbn.norm.activation import normalise_and_activate
from predbn.norm.adapted_layer import attached

from ..models.kernels.conftest import INTERPRETED, bench

__all__ = ["bench"]

LAYOUTS = [torch.channels_last, torch.contiguous_format]
SHAPES = [(5, 16, 16, 16), (7, 3, 32, 32), (3, 24, 9, 9), (2, 70, 8, 8)]


def new_layer(channels, device):
    generator = torch.Generator().manual_seed(channels)
    layer = nn.BatchNorm2d(channels, eps=1e-3).eval()
    for tensor in (layer.weight.data, layer.bias.data, layer.running_mean, layer.running_var):
        tensor.copy_(torch.rand(channels, generator=generator) + 0.2)
    return layer.to(device)


def new_maps(bench, shape, layout):
    return [bench.map(*shape).detach().contiguous(memory_format=layout) for _ in range(2)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strategy", [None, "train", "batch"])
def test_a_layer_with_what_follows_it(bench, strategy, shape, layout):
    layer = new_layer(shape[1], bench.device)
    plain = copy.deepcopy(layer).double()
    x, shortcut = new_maps(bench, shape, layout)
    if strategy is not None:
        predbn.adapt(layer, strategy)
    plain.train(strategy == "batch")
    for add, relu in product((False, True), repeat=2):
        with torch.no_grad():
            ours = normalise_and_activate(layer, x, shortcut if add else None, relu)
            expected = plain(x.double())
        expected = expected + shortcut if add else expected
        expected = F.relu(expected) if relu else expected
        assert ours.dtype == x.dtype
        assert ours.stride() == x.stride()
        torch.testing.assert_close(ours.double(), expected, atol=bench.tolerance, rtol=bench.tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_rounded_as_separate_operations_round(bench, layout):
    layer = new_layer(16, bench.device)
    x, shortcut = (t.half() for t in new_maps(bench, (4, 16, 8, 8), layout))
    with torch.no_grad():
        alone = normalise_and_activate(layer, x, None, relu=False)
        assert torch.equal(normalise_and_activate(layer, x, shortcut, relu=True), F.relu(alone + shortcut))


@pytest.mark.parametrize("add", [False, True])
def test_what_is_not_a_number_stays_so(bench, add):
    x, shortcut = new_maps(bench, (2, 16, 8, 8), torch.channels_last)
    x[1, 3, 2, 2] = float("nan")
    with torch.no_grad():
        y = normalise_and_activate(new_layer(16, bench.device), x, shortcut if add else None, relu=True)
    assert y[1, 3, 2, 2].isnan()
    assert y.isnan().sum() == 1


CASES = {
    "training": lambda layer: layer.train(),
    "a hook": lambda layer: layer.register_forward_hook(lambda *_: None),
    "a hook before": lambda layer: layer.register_forward_pre_hook(lambda *_: None),
    "a forward of its own": lambda layer: setattr(layer, "forward", lambda x: x),
    "another strategy": lambda layer: predbn.adapt(layer, "prior"),
    "state": lambda layer: predbn.adapt(layer, "ema"),
    "groups": lambda layer: predbn.adapt(layer, "batch", group=2),
    "bounds": lambda layer: predbn.adapt(layer, "batch", robust=True),
    "no statistics": lambda layer: layer.__dict__["_buffers"].update(running_mean=None, running_var=None),
    "no eps": lambda layer: predbn.adapt(layer, "batch", eps=0.0),
    "half statistics": lambda layer: layer.half(),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_for_which_it_is_not_used(bench, case):
    layer = new_layer(16, bench.device)
    x, shortcut = new_maps(bench, (4, 16, 8, 8), torch.channels_last)
    with torch.no_grad():
        assert normalise_and_activate(layer, x, shortcut, relu=True) is not None
        CASES[case](layer)
        assert normalise_and_activate(layer, x, shortcut, relu=True) is None


def test_inputs_for_which_it_is_not_used(bench):
    layer = new_layer(16, bench.device)
    x, shortcut = new_maps(bench, (4, 16, 8, 8), torch.channels_last)
    assert normalise_and_activate(layer, x, shortcut, relu=True) is None  # with gradients
    with torch.no_grad():
        others = x[:, :, ::2], x.double(), x.flatten(2), x[:1, :, :1, :1]
        assert all(normalise_and_activate(layer, other, None, relu=True) is None for other in others)
        for other in (shortcut.contiguous(), shortcut.double(), shortcut[:1]):
            assert normalise_and_activate(layer, x, other, relu=True) is None
        adapted = predbn.adapt(copy.deepcopy(layer), "batch")
        with predbn.streams(adapted, [0, 0, 1, 1]):
            assert normalise_and_activate(adapted, x, None, relu=True) is None
    other_type = nn.GroupNorm(2, 16).eval()
    assert normalise_and_activate(other_type, x, None, relu=True) is None


@pytest.mark.parametrize("strategy", ["train", "batch", "prior"])
def test_a_network_with_it_is_the_network_without(bench, monkeypatch, strategy):
    torch.manual_seed(0)
    plain = resnet20().to(bench.device, bench.dtype).eval().to(memory_format=torch.channels_last)
    for layer in plain.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.float()
            layer.running_var.fill_(2.0)
    x = bench.map(3, 3, 16, 16).detach()
    used = []
    monkeypatch.setattr(
        import_module("predbn.models.kernels.accelerate"),
        "normalise_and_activate",
        lambda *arguments: used.append(normalise_and_activate(*arguments)) or used[-1],
    )
    fast = predbn.adapt(accelerate_prediction(copy.deepcopy(plain)), strategy)
    slow = predbn.adapt(copy.deepcopy(plain), strategy)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error")  # layers that were not called would be warned about
        found, expected = fast(x), slow(x)
    assert len(used) == 21
    assert all((each is None) == (strategy == "prior") for each in used)
    tolerance = 1e-3 if INTERPRETED else 0.1
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    for ours, theirs in zip(predbn.describe(fast), predbn.describe(slow), strict=True):
        if strategy == "train":
            assert ours.distance is theirs.distance is None
        else:
            assert ours.distance == pytest.approx(theirs.distance, rel=tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_of_few_channels(bench, monkeypatch, affine, layout):
    """Large maps of few channels are normalised by our kernels, which is measured and not seen in the result."""
    monkeypatch.setattr(kernels, "_MANY_VALUES", 64)
    x, _ = new_maps(bench, (6, 16, 8, 8), layout)
    x = 3 * x + 5
    layer = new_layer(16, bench.device) if affine else nn.BatchNorm2d(16, affine=False, device=bench.device)
    model = predbn.adapt(nn.Sequential(layer).eval(), "batch")
    with torch.inference_mode():
        assert kernels.is_slow_in_cudnn(x, layer.weight, layer.bias)
        y = model(x)
    wide, affine_parameters = x.double(), (layer.weight, layer.bias)
    expected = F.batch_norm(
        wide, None, None, *(t if t is None else t.double() for t in affine_parameters), True, 0.0, layer.eps
    )
    torch.testing.assert_close(y.double(), expected, atol=bench.tolerance, rtol=bench.tolerance)
    var, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
    found = attached(layer).last_batch.statistics
    torch.testing.assert_close(found.mean.double(), mean, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.var.double(), var, atol=1e-4, rtol=1e-4)


def test_which_inputs_are_slow_in_cudnn(bench):
    def is_slow(*shape, dtype=torch.float32, layout=torch.contiguous_format):
        x = torch.zeros(1, dtype=dtype, device=bench.device).expand(shape).contiguous(memory_format=layout)
        with torch.inference_mode():
            return kernels.is_slow_in_cudnn(x)

    assert is_slow(64, 16, 32, 32)
    assert is_slow(256, 32, 16, 16, dtype=torch.half)
    assert not is_slow(63, 16, 32, 32)
    assert not is_slow(64, 33, 32, 32)
    assert not is_slow(64, 16, 32, 32, dtype=torch.double)
    assert not is_slow(2**16, 16)
    assert is_slow(8, 64, 7, 7, dtype=torch.half, layout=torch.channels_last)
    assert not is_slow(8, 64, 7, 7, dtype=torch.half)
    assert is_slow(8, 64, 7, 7, layout=torch.channels_last)
    assert not is_slow(8, 64, 7, 7)
    assert not is_slow(8, 64, 7, 7, dtype=torch.double, layout=torch.channels_last)


@pytest.mark.parametrize("programs", [1, 3, 1000, None])
def test_tiles_cover_every_value_once(programs):
    pytest.importorskip("triton", reason="Triton is not installed")
    from predbn.norm.gpu.sums import _tiling

    for n, c, size, groups, is_last in product(
        (1, 6, 500), (1, 3, 16, 33, 64, 130, 256), (1, 7, 8, 16, 32), (1, 2), (0, 1)
    ):
        if n % groups:
            continue
        tiling = _tiling((n, c, size, size), bool(is_last), groups, programs)
        assert tiling.rows * groups == n * size * size
        assert (tiling.blocks - 1) * tiling.tile_columns < c * tiling.fold <= tiling.blocks * tiling.tile_columns
        in_piece = tiling.tiles * tiling.tile_rows
        assert tiling.rows % tiling.fold == 0
        assert (tiling.pieces - 1) * in_piece < tiling.rows // tiling.fold <= tiling.pieces * in_piece
        assert tiling.tile_rows * tiling.tile_columns <= 4096
        if tiling.is_whole:
            assert tiling.positions % tiling.tile_rows == 0
