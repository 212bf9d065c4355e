from __future__ import annotations

import copy

import pytest
import torch
from torch import nn


@pytest.mark.parametrize("shape", [(3, 16, 8, 8), (5, 64, 4, 3), (3, 32, 20, 20)])
def test_against_pytorch(bench, ending, shape):
    from predbn.models.kernels.batch_norm import batch_norm

    relu, end, add = ending
    x, shortcut = bench.map(*shape), bench.map(*shape)
    layer = nn.BatchNorm2d(shape[1], eps=1e-3, momentum=0.01).to(bench.device)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    plain = copy.deepcopy(layer)
    plain.weight, plain.bias = layer.weight, layer.bias
    bench.compare(
        lambda: batch_norm(layer, x, shortcut if add else None, relu=relu),
        lambda: end(plain(x.float()), shortcut.float()),
        [x, *([shortcut] if add else []), layer.weight, layer.bias],
    )
    assert layer.num_batches_tracked == plain.num_batches_tracked == 1
    torch.testing.assert_close(layer.running_mean, plain.running_mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer.running_var, plain.running_var, rtol=1e-4, atol=1e-5)


def test_the_same_bits_every_time(bench):
    from predbn.models.kernels.batch_norm import batch_norm

    x, layer = bench.map(9, 16, 12, 12), nn.BatchNorm2d(16).to(bench.device)
    rounds = []
    for _ in range(2):
        y = batch_norm(layer, x, None, relu=True)
        rounds.append([y, *torch.autograd.grad(y.float().square().sum(), [x, layer.weight, layer.bias])])
    assert all(map(torch.equal, *rounds))
