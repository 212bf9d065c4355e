from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("shape", [(3, 16, 8, 8), (5, 32, 9, 7)])
def test_against_pytorch(bench, ending, scaled, shape):
    from predbn.models.kernels.scalar_affine import scalar_affine

    relu, end, add = ending
    x, shortcut = bench.map(*shape), bench.map(*shape)
    scale, shift = (torch.tensor(value, device=bench.device, requires_grad=True) for value in (1.3, -0.2))
    bench.compare(
        lambda: scalar_affine(x, scale if scaled else None, shift, shortcut if add else None, relu=relu),
        lambda: end(x.float() * scale + shift if scaled else x.float() + shift, shortcut.float()),
        [x, *([shortcut] if add else []), *([scale] if scaled else []), shift],
    )
