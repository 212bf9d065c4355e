from __future__ import annotations

import pytest
from torch import nn

LAYERS = {
    "group": lambda channels: nn.GroupNorm(2, channels, eps=1e-3),
    "layer": lambda channels: nn.GroupNorm(1, channels, eps=1e-3),
    "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True, eps=1e-3),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("shape", [(3, 16, 8, 8), (2, 64, 4, 4), (1, 32, 16, 2)])
def test_against_pytorch(bench, ending, make, shape):
    from predbn.models.kernels.image_norm import image_norm

    relu, end, add = ending
    x, shortcut, layer = bench.map(*shape), bench.map(*shape), make(shape[1]).to(bench.device)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    bench.compare(
        lambda: image_norm(layer, x, shortcut if add else None, relu=relu),
        lambda: end(layer(x.float()), shortcut.float()),
        [x, *([shortcut] if add else []), layer.weight, layer.bias],
    )
