"""Our GPU kernels against plain PyTorch; without a GPU, `tests/models/kernels/test_interpreted.py` runs them."""

from __future__ import annotations

import pytest
import torch

from predbn.norm.calibration import Calibration, channel_weights
from predbn.norm.statistics import Statistics
from predbn.norm.strategies.auto import mixture

from ..models.kernels.conftest import bench

__all__ = ["bench"]


@pytest.mark.parametrize("shape", [(6, 16, 8, 8), (12, 24, 5, 3), (2, 130, 7, 7), (6, 64, 1, 1), (8, 1, 20, 20)])
@pytest.mark.parametrize("group", [None, 1, 2])
def test_moments(bench, shape, group):
    from predbn.norm.gpu_moments import single_pass_moments

    x = (bench.map(*shape).detach() * 3 + 5).contiguous(memory_format=torch.channels_last)
    result = single_pass_moments(x, group)
    wide = x.double().cpu().movedim(1, -1)
    parts = [wide] if group is None else wide.split(group)
    var, mean = (torch.stack(t) for t in zip(*(torch.var_mean(p, (0, 1, 2), correction=0) for p in parts), strict=True))
    for ours, expected in zip(result, (mean, var), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(
            ours.double().cpu(), expected[0] if group is None else expected, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("ratio", [0.0, 100.0, 1000.0, 2000.0])
@pytest.mark.parametrize("shape", [(4, 70, 24, 24), (1, 3, 3, 5)])
@pytest.mark.parametrize("group", [None, 1])
def test_a_mean_that_is_large_compared_to_the_spread(bench, shape, group, ratio):
    from predbn.norm.gpu_moments import single_pass_moments

    generator = torch.Generator().manual_seed(0)
    # Half precision: values around 1,000 are rounded to halves, so that the spread is many of these steps.
    x = (torch.randn(shape, generator=generator) * 16 + 16 * ratio).to(torch.float16)
    x = x.to(bench.device).contiguous(memory_format=torch.channels_last)
    mean, var = (t.double().cpu() for t in single_pass_moments(x, group))
    wide = x.double().cpu()
    dims = (0, 2, 3) if group is None else (2, 3)
    expected_var, expected_mean = torch.var_mean(wide, dims, correction=0)
    torch.testing.assert_close(var, expected_var, rtol=1e-3, atol=0)
    torch.testing.assert_close(mean, expected_mean, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("groups", [(), (3,)])
@pytest.mark.parametrize("channels", [5, 64, 1500])
@pytest.mark.parametrize("shift", [0.0, 0.3, 1e4])
@pytest.mark.parametrize("between_class", [0.0, 0.5])
def test_mixture(bench, groups, channels, shift, between_class):
    from predbn.norm.strategies.auto_gpu import mixture_on_gpu

    generator = torch.Generator().manual_seed(channels)

    def random(*shape):
        return torch.rand(shape, generator=generator).to(bench.device) + 0.1

    batch = Statistics(random(*groups, channels) + shift, random(*groups, channels) * (1 + shift))
    clean = Calibration(500, 3.0, 0.2, 0.7, random(channels), random(channels), channel_weights(random(channels)))
    source = Statistics(random(channels), random(channels))
    arguments = batch, clean, source, 1e-3, 0.1, between_class, 0.3
    for ours, expected in zip(mixture_on_gpu(*arguments), mixture(*arguments), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4 * (1 + shift))
