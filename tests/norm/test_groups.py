"""Many small batches in one pass: each as if it were alone."""

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
    strategy=st.sampled_from(["batch", "prior(N=3)", "prior(N=0)", "train", "auto"]),
    layout=st.sampled_from([torch.contiguous_format, torch.channels_last]),
)
def test_one_pass_over_groups_is_a_pass_for_each(groups, size, strategy, layout):
    x = images(groups * size, shift=1.0).contiguous(memory_format=layout)
    alone, together = predbn.adapt(net(), strategy), predbn.adapt(net(), strategy, group=size)
    with torch.no_grad():
        expected = torch.cat([alone(part) for part in x.split(size)])
        torch.testing.assert_close(together(x), expected, rtol=1e-4, atol=1e-5)


def test_a_layer_without_stored_statistics_uses_its_group():
    layer = randomise(nn.BatchNorm2d(3, track_running_stats=False)).eval()
    x = images(8)
    expected = torch.cat([layer(part) for part in x.split(4)])
    torch.testing.assert_close(predbn.adapt(layer, "train", group=4)(x), expected, rtol=1e-5, atol=1e-5)


def test_one_value_per_channel_has_no_variance():
    layer = nn.BatchNorm1d(4).eval()
    with pytest.raises(predbn.AdaptationError, match="no variance"):
        predbn.adapt(layer, group=1)(torch.randn(6, 4))
    assert predbn.adapt(layer, "prior", group=1)(torch.randn(6, 4)).isfinite().all()


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        *(("batch", {"group": n}, "group must be a number of examples, 1 or more") for n in (0, -1, 2.0, True, "4")),
        *((strategy, {"group": 2}, "does not support group=") for strategy in ("ema", "auto_stream", "frozen")),
        ("batch", {"group": 2, "sync": True}, "cannot be combined"),
        ("batch", {"group": 3}, "7 examples in groups of 3"),
    ],
)
def test_what_cannot_be_grouped(strategy, options, message):
    with pytest.raises(predbn.AdaptationError, match=message):
        predbn.adapt(net(), strategy, **options)(images(7))


def test_it_compiles_and_has_gradients():
    model, x = predbn.adapt(net(), group=4), images(8).requires_grad_()
    plain = predbn.adapt(net())
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    expected = torch.cat(
        [torch.autograd.grad(plain(p).square().sum(), p)[0] for p in x.detach().split(4) for p in [p.requires_grad_()]]
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x.detach()), model(x.detach()), rtol=1e-4, atol=1e-5)
