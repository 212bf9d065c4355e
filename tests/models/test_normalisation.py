from __future__ import annotations

import pytest
import torch
from torch import nn

from predbn.models import ModelError
from predbn.models.normalisation import NORMALISATIONS, find

EPS = 1e-3

REDUCED = {
    "batch": lambda x: x.permute(1, 0, 2, 3).reshape(x.shape[1], -1),
    "instance": lambda x: x.reshape(len(x), x.shape[1], -1),
    "layer": lambda x: x.reshape(len(x), -1),
    "group": lambda x: x.reshape(len(x), 2, -1),
}
BACK = {
    "batch": lambda y, x: y.reshape(x.shape[1], len(x), *x.shape[2:]).permute(1, 0, 2, 3),
    "instance": lambda y, x: y.reshape(x.shape),
    "layer": lambda y, x: y.reshape(x.shape),
    "group": lambda y, x: y.reshape(x.shape),
}


@pytest.mark.parametrize("name", REDUCED)
@torch.no_grad()
def test_the_closed_form(name):
    x = torch.randn(3, 4, 5, 5) * 2 + 1
    layer = find(name).norm(4, EPS)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    rows = REDUCED[name](x.double())
    rows = (rows - rows.mean(-1, keepdim=True)) / (rows.var(-1, correction=0, keepdim=True) + EPS).sqrt()
    wanted = BACK[name](rows, x) * layer.weight.view(-1, 1, 1) + layer.bias.view(-1, 1, 1)
    torch.testing.assert_close(layer(x).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["batch", "instance", "layer", "group"])
def test_one_kind_of_layer_everywhere(name):
    scheme = find(name)
    assert {type(make(4, EPS)) for make in (scheme.norm, scheme.branch_end, scheme.shortcut)} == {
        type(scheme.norm(4, EPS))
    }
    assert scheme.norm(4, EPS).eps == EPS


def test_running_statistics_are_averages_over_a_hundred_batches():
    assert find("batch").norm(4, EPS).momentum == find("last").before_linear(4, EPS).momentum == 0.01


def test_fixup_has_no_normalisation_and_last_has_one():
    for name in ("fixup", "last"):
        scheme = find(name)
        layers = [make(4, EPS) for make in (scheme.norm, scheme.branch_end, scheme.shortcut)]
        assert not any(isinstance(layer, nn.modules.batchnorm._NormBase | nn.GroupNorm) for layer in layers)
    assert find("fixup").before_linear is None
    assert isinstance(find("last").before_linear(4, EPS), nn.BatchNorm1d)


def test_names():
    assert list(NORMALISATIONS) == ["batch", "instance", "layer", "group", "fixup", "last"]
    with pytest.raises(ModelError, match=r"no normalisation 'btach': there are batch, .*did you mean 'batch'\?"):
        find("btach")
