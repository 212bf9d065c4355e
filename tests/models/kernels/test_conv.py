from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


def filters(bench, outputs, inputs):
    """fp32 values that the precision of the activations holds exactly: what is rounded is not what is tested."""
    values = torch.randn(outputs, inputs, 3, 3, device=bench.device) / (9 * inputs) ** 0.5
    return values.to(bench.dtype).float().requires_grad_()


@pytest.mark.parametrize("outputs", [16, 32, 64])
@pytest.mark.parametrize("inputs", [16, 32, 64])
def test_against_pytorch(bench, inputs, outputs):
    from predbn.models.kernels.conv import conv3x3

    x, weight = bench.map(3, inputs, 6, 5), filters(bench, outputs, inputs)
    with torch.backends.cudnn.flags(allow_tf32=False):
        bench.compare(lambda: conv3x3(x, weight), lambda: F.conv2d(x.float(), weight, padding=1), [x, weight])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(1, 16, 1, 1), (2, 16, 17, 9)])
def test_other_shapes_and_layouts_of_the_filter(bench, shape, layout):
    from predbn.models.kernels.conv import conv3x3

    x = bench.map(*shape)
    weight = filters(bench, 16, 16).detach().contiguous(memory_format=layout).requires_grad_()
    with torch.backends.cudnn.flags(allow_tf32=False):
        bench.compare(lambda: conv3x3(x, weight), lambda: F.conv2d(x.float(), weight, padding=1), [x, weight])


def test_the_same_bits_every_time(bench):
    from predbn.models.kernels.conv import conv3x3

    x, weight = bench.map(4, 16, 9, 9), filters(bench, 16, 16)
    first, second = (torch.autograd.grad(conv3x3(x, weight).float().square().sum(), [x, weight]) for _ in range(2))
    assert all(map(torch.equal, first, second))
