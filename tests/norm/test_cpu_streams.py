"""What is computed on a CPU for rows of several streams, against slow references."""

from __future__ import annotations

import copy

import pytest
import torch

import predbn
from predbn.norm import kernels
from predbn.norm.cpu_robust import robust_moments_on_cpu
from predbn.norm.robust import NARROW, WIDE, robust_moments
from predbn.norm.strategies import auto_stream
from predbn.norm.stream_rows import StreamRows

from .models import images, net

SHAPES = [(12, 5), (12, 7, 9), (12, 4, 1, 1), (12, 6, 2, 3), (12, 3, 40, 41), (12, 3, 2, 3, 2)]
ORDERS = {"regular": [i // 3 for i in range(12)], "mixed": [0, 3, 1, 3, 0, 3, 2, 1, 3, 0, 1, 3]}


def channels_last(x):
    """The same values, with channels next to each other in memory."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


LAYOUTS = {"first": torch.Tensor.contiguous, "last": channels_last, "strided": lambda x: x.repeat_interleave(2, 0)[::2]}


def per_stream(x, ids):
    """Mean and variance of each stream, in double precision."""
    parts = [x[[i for i, own in enumerate(ids) if own == name]].double() for name in dict.fromkeys(ids)]
    dims = [0, *range(2, x.dim())]
    return (torch.stack([f(part) for part in parts]) for f in (lambda t: t.mean(dims), lambda t: t.var(dims, False)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 1e4), (torch.float32, 0), (torch.bfloat16, 3)])
def test_moments_and_normalised_values(layout, order, shape, dtype, offset):
    """|mean|/std is up to 10⁴; a channel that is nearly constant has the standard deviation 10⁻³."""
    generator = torch.Generator().manual_seed(0)
    ids = ORDERS[order]
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x += torch.tensor(ids).view(-1, *[1] * (len(shape) - 1)) / 4
    x[:, 0] = 1e-3 * x[:, 0]
    x[:, 1] += offset
    x = LAYOUTS[layout](x.to(dtype))
    rows, eps = StreamRows(ids), 1e-5
    mean, var = kernels.stream_moments(x, rows.index(x), rows.size_tensor(x), eps, rows.group)
    expected_mean, expected_var = per_stream(x, ids)
    assert mean.dtype == var.dtype == torch.float32
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(var.double(), expected_var, rtol=1e-4 if offset < 1e4 else 1e-2, atol=1e-9)
    weight, bias = torch.rand(2, shape[1], generator=generator) + 0.5
    if rows.group is None:
        mean, var = rows.repeat(mean), rows.repeat(var)
    y = kernels.normalise(x, mean, var, weight, bias, eps)
    assert y.dtype == x.dtype
    if layout != "strided":
        assert y.stride() == LAYOUTS[layout](y).stride() or y[0, 0].numel() == 1
    shape_of_rows = len(ids), -1, *[1] * (x.dim() - 2)
    centred = x.double() - (mean if rows.group is None else rows.repeat(mean)).double().view(shape_of_rows)
    scale = ((var if rows.group is None else rows.repeat(var)).double() + eps).rsqrt() * weight
    wanted = centred * scale.view(shape_of_rows) + bias.view(1, -1, *[1] * (x.dim() - 2))
    # x · scale + shift, as in PyTorch's own kernel, has the rounding errors of numbers as large as x · scale.
    allowed = 4 * torch.finfo(torch.float32).eps * (x.double().abs() * scale.view(shape_of_rows)).amax() + 1e-5
    allowed = allowed + torch.finfo(dtype).eps * wanted.abs()
    assert ((y.double() - wanted).abs() <= allowed).all()


def test_maps_of_one_value_have_the_strides_of_contiguous_ones():
    """As in PyTorch: with other strides the next convolution takes several times as long."""
    x = torch.randn(8, 6, 1, 1).as_strided((8, 6, 1, 1), (6, 1, 6, 6))
    statistics = torch.zeros(2, 6), torch.ones(2, 6)
    weight, bias = torch.ones(6), torch.zeros(6)
    y = kernels.normalise(x, *statistics, weight, bias, 1e-5)
    plain = torch.batch_norm(x, weight, bias, torch.zeros(6), torch.ones(6), False, 0.0, 1e-5, False)
    assert y.stride() == plain.stride()
    torch.testing.assert_close(y, plain)


def test_which_streams_are_regular():
    assert StreamRows("aabbcc").group == 2
    assert StreamRows("abc").group == 1
    assert StreamRows("aaa").group == 3
    for ids in ("aab", "abb", "abab", "aabbc", "abba"):
        assert StreamRows(ids).group is None


@pytest.mark.parametrize("bounds", [NARROW, WIDE])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 8, 9, 30])
def test_robust_moments(group, bounds):
    generator = torch.Generator().manual_seed(group)
    mean = torch.randn(3 * group, 7, generator=generator)
    var = torch.rand(3 * group, 7, generator=generator)
    mean[0, 1], var[1 % group, 2], mean[:, 3] = 100, 1000, 2.0
    clean_var, scatter = torch.rand(2, 7, generator=generator) / 50
    is_finite = torch.ones(len(mean), dtype=torch.bool)
    for own_scatter in (scatter, 0.01):
        found = robust_moments_on_cpu(mean, var, 1e-5, clean_var, own_scatter, group, bounds)
        wide = own_scatter.double() if isinstance(own_scatter, torch.Tensor) else own_scatter
        expected = robust_moments(mean.double(), var.double(), is_finite, 1e-5, clean_var.double(), wide, group, bounds)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:layer 'bn1' got 1 examples", "ignore:the argument skewed:DeprecationWarning")
@pytest.mark.parametrize("strategy", ["auto_stream", "auto_stream(momentum=0.3)", "auto_stream(skewed=True)"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_auto_stream_as_in_plain_pytorch(monkeypatch, strategy, layout):
    """Streams begin, come back and have rows that are not finite; the outputs are those of the equations in PyTorch."""
    ours = net()
    predbn.calibrate(ours, [images(64, seed=seed) for seed in range(4)])
    predbn.adapt(ours, strategy)
    plain = copy.deepcopy(ours)
    passes = ["aabbcc", "aabbcc", "ccaa", "abcd", "ddddeeee", "abacad", "ddddeeee", "aaaabbbbccccdddd", "eedd"]
    for number, ids in enumerate(passes):
        x = images(len(ids), seed=number).contiguous(memory_format=layout) * (1 + number % 3)
        if number == 6:
            x[1] = torch.nan
        with torch.inference_mode(), predbn.streams(ours, list(ids)):
            found = ours(x)
        with monkeypatch.context() as patch, torch.inference_mode(), predbn.streams(plain, list(ids)):
            patch.setattr(auto_stream, "_can_use_numpy", lambda *_: False)
            patch.setattr(kernels, "readable_without_sync", lambda _: False)
            expected = plain(x)
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4, equal_nan=True)
