"""Many small batches in one pass: each as if it were alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import predbn

from .models import images, net, randomise


@given(
    groups=st.integers(1, 4),
    size=st.integers(2, 5),
    strategy=st.sampled_from(["batch", "prior(N=3)", "prior(N=0)", "train", "auto", "auto(skewed=True)"]),
    layout=st.sampled_from([torch.contiguous_format, torch.channels_last]),
)
def test_one_pass_over_groups_is_a_pass_for_each(groups, size, strategy, layout):
    x = images(groups * size, shift=1.0).contiguous(memory_format=layout)
    alone, together = predbn.adapt(net(), strategy), predbn.adapt(net(), strategy, group=size)
    with torch.no_grad():
        expected = torch.cat([alone(part) for part in x.split(size)])
        torch.testing.assert_close(together(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(12, 5), (12, 5, 7), (12, 5, 3, 4), (12, 5, 2, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_every_shape_and_precision(shape, dtype):
    torch.manual_seed(0)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    layer = randomise(kind(5)).to(dtype).eval()
    x = (3 + torch.randn(shape)).to(dtype)
    together = predbn.adapt(layer, "batch", group=4)(x)
    assert together.dtype == dtype
    parts = []
    for part in x.double().split(4):
        dims = [d for d in range(x.dim()) if d != 1]
        var, mean = torch.var_mean(part, dims, correction=0, keepdim=True)
        view = [1, -1, *[1] * (x.dim() - 2)]
        parts.append((part - mean) / (var + layer.eps).sqrt() * layer.weight.view(view) + layer.bias.view(view))
    tolerance = {torch.float16: 4e-3, torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    torch.testing.assert_close(together.double(), torch.cat(parts).double(), rtol=tolerance, atol=tolerance)


def test_a_layer_without_stored_statistics_uses_its_group():
    layer = randomise(nn.BatchNorm2d(3, track_running_stats=False)).eval()
    x = images(8)
    expected = torch.cat([layer(part) for part in x.split(4)])
    torch.testing.assert_close(predbn.adapt(layer, "train", group=4)(x), expected, rtol=1e-5, atol=1e-5)


def test_a_remainder_is_refused():
    with pytest.raises(predbn.AdaptationError, match="7 examples in groups of 3"):
        predbn.adapt(net(), group=3)(images(7))


def test_one_value_per_channel_has_no_variance():
    layer = nn.BatchNorm1d(4).eval()
    with pytest.raises(predbn.AdaptationError, match="no variance"):
        predbn.adapt(layer, group=1)(torch.randn(6, 4))
    assert predbn.adapt(layer, "prior", group=1)(torch.randn(6, 4)).isfinite().all()


@pytest.mark.parametrize("group", [0, -1, 2.0, True, "4"])
def test_invalid_groups(group):
    with pytest.raises(predbn.AdaptationError, match="how many examples make up a batch"):
        predbn.adapt(net(), group=group)


def test_strategies_and_options_without_groups():
    for strategy in ("ema", "auto_stream", "frozen", "population"):
        with pytest.raises(predbn.AdaptationError, match="takes no group"):
            predbn.adapt(net(), strategy, group=2)
    with pytest.raises(predbn.AdaptationError, match="drop one"):
        predbn.adapt(net(), "batch", group=2, sync=True)


def test_it_compiles_and_has_gradients():
    model, x = predbn.adapt(net(), group=4), images(8).requires_grad_()
    plain = predbn.adapt(net())
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    expected = torch.cat(
        [torch.autograd.grad(plain(p).square().sum(), p)[0] for p in x.detach().split(4) for p in [p.requires_grad_()]]
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x.detach()), model(x.detach()), rtol=1e-4, atol=1e-5)
